// c10d's TCPStore, with three additions: the server listens on the loopback interface unless ranks
// are on other machines, all keys are prefixed with the job's token, and a store that is missing or
// belongs to another job is reported as such within the requested timeout.
#include "runtime/comm/rendezvous.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "runtime/base/check.h"

namespace moonshard::comm {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;
constexpr const char* kHello = "hello";

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// The first line: LibTorch's errors carry a C++ stack.
std::string short_text(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// Owns a socket: closed unless released.
class Listener {
 public:
  // Binds to an address of this machine; to all of them when the name is not one of its own (a
  // cluster may give a node several).
  Listener(const std::string& address, uint16_t port) {
    sockaddr_in wanted{};
    wanted.sin_family = AF_INET;
    wanted.sin_port = htons(port);
    const bool local = is_loopback(address);
    if (local || !resolve(address, wanted.sin_addr))
      wanted.sin_addr.s_addr = htonl(local ? INADDR_LOOPBACK : INADDR_ANY);
    int error = try_listen(wanted);
    if (error == EADDRNOTAVAIL && !local) {
      wanted.sin_addr.s_addr = htonl(INADDR_ANY);
      error = try_listen(wanted);
    }
    if (error != 0) {
      throw IoError(fmt::format(
          "rendezvous: {}:{}: cannot listen: {}; set MASTER_PORT to a free port, the same for all "
          "ranks",
          address, port, std::strerror(error)));
    }
  }
  ~Listener() {
    if (file_ >= 0) ::close(file_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  uint16_t port() const {
    sockaddr_in bound{};
    socklen_t size = sizeof bound;
    ::getsockname(file_, reinterpret_cast<sockaddr*>(&bound), &size);
    return ntohs(bound.sin_port);
  }
  int release() { return std::exchange(file_, -1); }

 private:
  static bool resolve(const std::string& name, in_addr& address) {
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
  int try_listen(const sockaddr_in& address) {
    if (file_ < 0) file_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file_ < 0) return errno;
    // The port of a job that has just ended is in TIME_WAIT; reuse it all the same.
    const int yes = 1;
    ::setsockopt(file_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(file_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(file_, 1024) != 0)
      return errno;
    return 0;
  }
  int file_ = -1;
};

// Empty when a connection is accepted there, else the system's reason.
std::string try_connect(const std::string& address, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (unknown != 0) return ::gai_strerror(unknown);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* one = found; one != nullptr && error != 0; one = one->ai_next) {
    const int file = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file < 0) continue;
    error = ::connect(file, one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      pollfd ready{file, POLLOUT, 0};
      socklen_t size = sizeof error;
      if (::poll(&ready, 1, 1000) == 1) {
        ::getsockopt(file, SOL_SOCKET, SO_ERROR, &error, &size);
      } else {
        error = ETIMEDOUT;
      }
    }
    ::close(file);
  }
  ::freeaddrinfo(found);
  return error == 0 ? "" : std::strerror(error);
}

// The server may start later than this rank. LibTorch would wait as well, but for twice the timeout
// and with stack traces in the log. Returns the last reason, empty when a server listens.
std::string wait_for_listener(const std::string& address, uint16_t port, double timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + milliseconds(timeout_s);
  while (true) {
    const std::string reason = try_connect(address, port);
    if (reason.empty() || std::chrono::steady_clock::now() >= deadline) return reason;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// We report a lost peer ourselves, with its rank; LibTorch would warn at every attempt.
void keep_libtorch_quiet() {
  constexpr int kErrorsOnly = 2;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) ::FLAGS_caffe2_log_level = kErrorsOnly;
}

c10d::TCPStoreOptions client_options(uint16_t port, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  return options;
}

StorePointer start_server(const std::string& address, uint16_t port) {
  Listener listener(address, port);
  auto options = client_options(listener.port(), 300);
  options.isServer = true;
  options.masterListenFd = listener.release();
  return c10::make_intrusive<c10d::TCPStore>(is_loopback(address) ? "127.0.0.1" : address, options);
}

StorePointer under_token(const std::string& token, StorePointer store) {
  return c10::make_intrusive<c10d::PrefixStore>("moonshard/" + token, std::move(store));
}

class StoreBoard : public Board {
 public:
  StoreBoard(StorePointer store, std::string host)
      : store_(std::move(store)), host_(std::move(host)) {}
  void post(const std::string& key, const std::string& text) override {
    guarded([&] { store_->set(key, std::vector<uint8_t>(text.begin(), text.end())); });
  }
  std::optional<std::string> read(const std::string& key) override {
    std::optional<std::string> result;
    guarded([&] {
      if (!store_->check({key})) return;  // get would wait for it
      const std::vector<uint8_t> bytes = store_->get(key);
      result.emplace(bytes.begin(), bytes.end());
    });
    return result;
  }
  std::string host() const override { return host_; }

 private:
  template <class Function>
  void guarded(Function function) const {
    try {
      function();
    } catch (const std::exception& error) {
      throw IoError(fmt::format("board: cannot reach the job's store: {}", short_text(error)));
    }
  }
  StorePointer store_;
  std::string host_;
};

std::string host_of(const RankEnvironment& environment) {
  if (!environment.store_is_hosted) return "rank 0";
  return environment.source == "moonshard" ? "the launcher" : environment.source;
}

}  // namespace

struct RendezvousHost::State {
  StorePointer server;
  uint16_t port = 0;
  std::shared_ptr<Board> board;
};

RendezvousHost::RendezvousHost(const std::string& token) : state_(std::make_unique<State>()) {
  state_->server = start_server("127.0.0.1", 0);
  state_->port = static_cast<c10d::TCPStore*>(state_->server.get())->getPort();
  const StorePointer store = under_token(token, state_->server);
  store->set(kHello, std::vector<uint8_t>{'1'});
  state_->board = std::make_shared<StoreBoard>(store, "the launcher");
}

RendezvousHost::~RendezvousHost() = default;

uint16_t RendezvousHost::port() const {
  return state_->port;
}

std::shared_ptr<Board> RendezvousHost::board() const {
  return state_->board;
}

struct Rendezvous::State {
  StorePointer server;  // rank 0's, unless the launcher hosts one
  StorePointer store;
  std::shared_ptr<Board> board;
};

Rendezvous::Rendezvous(const RankEnvironment& environment) : state_(std::make_unique<State>()) {
  keep_libtorch_quiet();
  const std::string& address = environment.master_address;
  const uint16_t port = environment.master_port;
  const double timeout_s = collective_timeout_s();
  const std::string host = host_of(environment);
  if (environment.rank == 0 && !environment.store_is_hosted)
    state_->server = start_server(address, port);
  // By numeric address: the name may resolve to one that the server does not listen on.
  const std::string where = is_loopback(address) ? "127.0.0.1" : address;
  const auto connect = [&] {
    return under_token(environment.token,
                       c10::make_intrusive<c10d::TCPStore>(where, client_options(port, timeout_s)));
  };
  std::string reason = wait_for_listener(where, port, timeout_s);
  if (reason.empty()) {
    try {
      state_->store = connect();
      state_->board = std::make_shared<StoreBoard>(connect(), host);
    } catch (const std::exception& error) {
      reason = short_text(error);
    }
  }
  if (!reason.empty()) {
    throw IoError(fmt::format(
        "rendezvous: rank {} of {}: expected {} to listen at {}:{} ({} says so), got no answer in "
        "{:.0f} s: {}; check the address, the port and a firewall between the machines",
        environment.rank, environment.world, host, address, port, environment.source, timeout_s,
        reason));
  }
  try {
    if (environment.rank == 0) state_->store->set(kHello, std::vector<uint8_t>{'1'});
    state_->store->wait({kHello}, milliseconds(timeout_s));
  } catch (const std::exception& error) {
    throw IoError(fmt::format(
        "rendezvous: rank {} of {}: expected rank 0 of this job at the store {}:{}, got none in "
        "{:.0f} s ({}); another job may own the port: set another MASTER_PORT",
        environment.rank, environment.world, address, port, timeout_s, short_text(error)));
  }
}

Rendezvous::~Rendezvous() = default;

c10d::Store* Rendezvous::store() const {
  return state_->store.get();
}

std::shared_ptr<Board> Rendezvous::board() const {
  return state_->board;
}

}  // namespace moonshard::comm
