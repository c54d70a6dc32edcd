#include "runtime/comm/store_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/sha256.h"
#include "runtime/comm/rank_environment.h"

namespace moonshard::comm {
namespace {

sockaddr_un unix_address(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  MS_CHECK(path.native().size() < sizeof(address.sun_path),
           "rendezvous: {}: expected a path below {} bytes for a socket, got {}", path.string(),
           sizeof(address.sun_path), path.native().size());
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  return address;
}

bool resolve_name(const std::string& name, in_addr& address) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0 || found == nullptr) return false;
  address = reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr;
  ::freeaddrinfo(found);
  return true;
}

// 0, or errno.
int bind_and_listen(int file, const sockaddr* address, socklen_t size) {
  return ::bind(file, address, size) == 0 && ::listen(file, 1024) == 0 ? 0 : errno;
}

Descriptor listen_on_tcp(StorePlace& place) {
  sockaddr_in wanted{};
  wanted.sin_family = AF_INET;
  wanted.sin_port = htons(place.port);
  const bool local = is_loopback(place.address);
  const bool known = !local && resolve_name(place.address, wanted.sin_addr);
  // A machine's own name is often a loopback address to itself; the others resolve it otherwise.
  const bool only_here = ntohl(wanted.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  if (!known || only_here) wanted.sin_addr.s_addr = htonl(local ? INADDR_LOOPBACK : INADDR_ANY);
  Descriptor file(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int error = file.number() < 0 ? errno : 0;
  if (error == 0) {
    // The port of a job that has just ended is in TIME_WAIT; reuse it all the same.
    const int yes = 1;
    ::setsockopt(file.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const auto* address = reinterpret_cast<const sockaddr*>(&wanted);
    error = bind_and_listen(file.number(), address, sizeof wanted);
    // The name is not one of this machine's own: a cluster may give a node several.
    if (error == EADDRNOTAVAIL && !local) {
      wanted.sin_addr.s_addr = htonl(INADDR_ANY);
      error = bind_and_listen(file.number(), address, sizeof wanted);
    }
  }
  if (error != 0) {
    throw IoError(fmt::format(
        "rendezvous: {}: cannot listen: {}; set MASTER_PORT to a free port, the same for all ranks",
        to_text(place), std::strerror(error)));
  }
  socklen_t size = sizeof wanted;
  ::getsockname(file.number(), reinterpret_cast<sockaddr*>(&wanted), &size);
  place.port = ntohs(wanted.sin_port);
  return file;
}

Descriptor listen_on_unix(const StorePlace& place) {
  const sockaddr_un wanted = unix_address(place.socket);
  Descriptor file(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int error = file.number() < 0
                  ? errno
                  : bind_and_listen(file.number(), reinterpret_cast<const sockaddr*>(&wanted),
                                    sizeof wanted);
  if (error == EADDRINUSE) {
    // A live server answers; the socket of a dead one is a file in the way.
    std::string reason;
    if (connect_to(place, reason).number() < 0 && ::unlink(place.socket.c_str()) == 0)
      error =
          bind_and_listen(file.number(), reinterpret_cast<const sockaddr*>(&wanted), sizeof wanted);
  }
  if (error != 0) {
    throw IoError(
        fmt::format("rendezvous: {}: cannot listen: {}; another job of yours may have the same "
                    "MASTER_PORT: set another, the same for all ranks",
                    place.socket.string(), std::strerror(error)));
  }
  return file;
}

Descriptor connect_socket(const sockaddr* address, socklen_t size, std::string& reason) {
  Descriptor file(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = file.number() < 0 ? errno : 0;
  if (error == 0 && ::connect(file.number(), address, size) != 0) error = errno;
  if (error == EINPROGRESS || error == EAGAIN) {
    pollfd ready{file.number(), POLLOUT, 0};
    socklen_t bytes = sizeof error;
    if (::poll(&ready, 1, 1000) == 1) {
      ::getsockopt(file.number(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    } else {
      error = ETIMEDOUT;
    }
  }
  if (error == 0) return file;
  reason = std::strerror(error);
  return Descriptor();
}

// Until it can be read or written, or the deadline.
void wait_for_socket(int socket, short what, StoreDeadline deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    pollfd ready{socket, what, 0};
    const int count =
        left <= 0 ? 0 : ::poll(&ready, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
    if (count > 0) return;
    if (count < 0 && errno != EINTR) throw IoError(std::strerror(errno));
    if (left <= 0) throw IoError("no answer in time");
  }
}

}  // namespace

std::string to_text(const StorePlace& place) {
  return place.socket.empty() ? fmt::format("{}:{}", place.address, place.port)
                              : place.socket.string();
}

Descriptor listen_at(StorePlace& place) {
  return place.socket.empty() ? listen_on_tcp(place) : listen_on_unix(place);
}

Descriptor connect_to(const StorePlace& place, std::string& reason) {
  if (!place.socket.empty()) {
    const sockaddr_un address = unix_address(place.socket);
    return connect_socket(reinterpret_cast<const sockaddr*>(&address), sizeof address, reason);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // By numeric address: the name may resolve to one that the server does not listen on.
  const std::string host = is_loopback(place.address) ? "127.0.0.1" : place.address;
  const int unknown =
      ::getaddrinfo(host.c_str(), std::to_string(place.port).c_str(), &hints, &found);
  if (unknown != 0) {
    reason = ::gai_strerror(unknown);
    return Descriptor();
  }
  Descriptor file;
  for (const addrinfo* one = found; one != nullptr && file.number() < 0; one = one->ai_next)
    file = connect_socket(one->ai_addr, one->ai_addrlen, reason);
  ::freeaddrinfo(found);
  const int yes = 1;
  if (file.number() >= 0) ::setsockopt(file.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return file;
}

bool is_own_user(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  if (address.ss_family != AF_UNIX) return true;
  ucred other{};
  size = sizeof other;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 &&
         other.uid == ::geteuid();
}

void send_all(int socket, std::string_view bytes, StoreDeadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      wait_for_socket(socket, POLLOUT, deadline);
    } else if (errno != EINTR) {
      throw IoError(std::strerror(errno));
    }
  }
}

std::string receive(int socket, size_t bytes, StoreDeadline deadline) {
  std::string result(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::recv(socket, result.data() + done, bytes - done, MSG_DONTWAIT);
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (got == 0) {
      throw IoError("the connection was closed by the other side");
    } else if (errno == EAGAIN) {
      wait_for_socket(socket, POLLIN, deadline);
    } else if (errno != EINTR) {
      throw IoError(std::strerror(errno));
    }
  }
  return result;
}

// ---- messages ---------------------------------------------------------------------------------

uint32_t size_field(std::string_view bytes) {
  uint32_t size = 0;
  for (size_t i = 0; i < 4; ++i) size |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return size;
}

std::string pack(const std::vector<std::string_view>& fields) {
  const auto put_size = [](std::string& to, size_t size) {
    for (size_t i = 0; i < 4; ++i) to += static_cast<char>(size >> (8 * i) & 0xff);
  };
  size_t total = 0;
  for (const std::string_view field : fields) total += 4 + field.size();
  MS_CHECK(total <= kMaxStoreMessage, "rendezvous: expected at most {} bytes in a message, got {}",
           kMaxStoreMessage, total);
  std::string message;
  put_size(message, total);
  for (const std::string_view field : fields) {
    put_size(message, field.size());
    message += field;
  }
  return message;
}

std::optional<std::vector<std::string>> unpack(std::string_view body) {
  std::vector<std::string> fields;
  while (!body.empty()) {
    if (body.size() < 4) return std::nullopt;
    const size_t size = size_field(body);
    if (size > body.size() - 4) return std::nullopt;
    fields.emplace_back(body.substr(4, size));
    body.remove_prefix(4 + size);
  }
  return fields;
}

// ---- proofs -----------------------------------------------------------------------------------

std::string make_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    throw IoError(fmt::format("rendezvous: no random bytes: {}", std::strerror(errno)));
  return nonce;
}

// Sides differ, so that a proof cannot be sent back to its maker.
std::string proof_of(std::string_view side, const std::string& token, std::string_view server_nonce,
                     std::string_view client_nonce) {
  std::string text(side);
  text += server_nonce;
  text += client_nonce;
  return hmac_sha256(token, text);
}

bool equal_proofs(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<uint8_t>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace moonshard::comm
