#include "runtime/comm/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/comm/rank_environment.h"

namespace moonshard::comm {
namespace {

std::string number_text(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

// 0, or getaddrinfo's error.
int resolve_host(const std::string& host, sockaddr_in& address) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found)) return error;
  address = *reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  ::freeaddrinfo(found);
  return 0;
}

// The first interface with an IPv4 address that the test accepts.
Route find_interface(const std::function<bool(const char* name, const in_addr& address)>& test) {
  Route route;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return route;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const in_addr& address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    if (!test(one->ifa_name, address)) continue;
    route.own = number_text(address);
    route.interface = one->ifa_name;
    break;
  }
  ::freeifaddrs(all);
  return route;
}

}  // namespace

Route route_to(const std::string& host) {
  sockaddr_in address{};
  if (const int error = resolve_host(host, address))
    throw IoError(fmt::format("{}: cannot find its address: {}", host, ::gai_strerror(error)));
  address.sin_port = htons(1);
  // Nothing is sent: connecting a datagram socket only asks for the route.
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  socklen_t size = sizeof own;
  if (socket.number() < 0 ||
      ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0 ||
      ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    throw IoError(fmt::format("{} ({}): no route to it: {}", host, number_text(address.sin_addr),
                              std::strerror(errno)));
  Route route = find_interface([&](const char*, const in_addr& candidate) {
    return candidate.s_addr == own.sin_addr.s_addr;
  });
  route.own = number_text(own.sin_addr);
  route.other = number_text(address.sin_addr);
  return route;
}

Route route_by_interface(const std::string& name, const char* variable) {
  Route route = find_interface(
      [&](const char* candidate, const in_addr&) { return std::string(candidate) == name; });
  MS_CHECK(!route.own.empty(),
           "environment: variable {}: expected an interface of this machine with an IPv4 address, "
           "got '{}'; `ip address` lists them",
           variable, name);
  return route;
}

bool is_this_machine(const std::string& host) {
  const std::string name = machine_name();
  if (is_loopback(host) || host == name || host == name.substr(0, name.find('.'))) return true;
  sockaddr_in address{};
  if (resolve_host(host, address) != 0) return false;
  // Only an own address can be bound to.
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  address.sin_port = 0;
  return socket.number() >= 0 &&
         ::bind(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

std::string to_text(const Route& route) {
  return route.interface.empty() ? route.own : fmt::format("{} ({})", route.own, route.interface);
}

std::string machine_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace moonshard::comm
