// Our own store (job_store.h) as c10d wants one, for process groups and as the board. Jobs of
// torchrun meet at torchrun's store, which is c10d's TCPStore.
#include "runtime/comm/rendezvous.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "runtime/base/check.h"
#include "runtime/base/sha256.h"
#include "runtime/comm/job_store.h"
#include "runtime/comm/store_socket.h"

namespace moonshard::comm {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// The first line: LibTorch's errors carry a C++ stack.
std::string short_text(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// We report a lost peer ourselves, with its rank; LibTorch would warn at every attempt.
void keep_libtorch_quiet() {
  constexpr int kErrorsOnly = 2;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) ::FLAGS_caffe2_log_level = kErrorsOnly;
}

// A rank whose peer is gone gets an error where it writes, and reports; the signal would end it
// without a word.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
    ::signal(SIGPIPE, SIG_IGN);
}

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}
std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

// Our store as process groups want one. Waiting is asking again: a group connects once.
class GroupStore : public c10d::Store {
 public:
  GroupStore(StorePlace place, std::string token, double timeout_s)
      : c10d::Store(milliseconds(timeout_s)),
        place_(std::move(place)),
        token_(std::move(token)),
        client_(place_, token_, timeout_s) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<GroupStore>(place_, token_,
                                           std::chrono::duration<double>(timeout_).count());
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    client_.set(key, text_of(value));
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& value) override {
    return bytes_of(client_.compare_set(key, text_of(expected), text_of(value)));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    wait({key}, timeout_);
    return bytes_of(client_.read(key).value_or(""));
  }
  int64_t add(const std::string& key, int64_t value) override { return client_.add(key, value); }
  bool deleteKey(const std::string& key) override { return client_.remove(key); }
  bool check(const std::vector<std::string>& keys) override { return client_.has_all(keys); }
  StoreClient& client() { return client_; }
  int64_t getNumKeys() override { return client_.count(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    using namespace std::chrono_literals;
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (auto pause = 1ms; !client_.has_all(keys); pause = std::min(2 * pause, 20ms)) {
      if (std::chrono::steady_clock::now() >= deadline)
        throw IoError(fmt::format("nothing under '{}' in {:.0f} s", keys.empty() ? "" : keys[0],
                                  std::chrono::duration<double>(timeout).count()));
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  StorePlace place_;
  std::string token_;
  StoreClient client_;
};

class StoreBoard : public Board {
 public:
  StoreBoard(StorePointer store, std::string host, int host_rank)
      : store_(std::move(store)),
        own_(dynamic_cast<GroupStore*>(store_.get())),
        host_(std::move(host)),
        host_rank_(host_rank) {}
  void post(const std::string& key, const std::string& text) override {
    guarded([&] { store_->set(key, bytes_of(text)); });
  }
  std::optional<std::string> read(const std::string& key) override {
    std::optional<std::string> result;
    guarded([&] {
      if (own_ != nullptr) {
        result = own_->client().read(key);
      } else if (store_->check({key}))
        result = text_of(store_->get(key));  // get alone would wait for it
    });
    return result;
  }
  std::vector<std::optional<std::string>> read_all(const std::vector<std::string>& keys) override {
    if (own_ == nullptr) return Board::read_all(keys);
    std::vector<std::optional<std::string>> result;
    guarded([&] { result = own_->client().read_all(keys); });
    return result;
  }
  std::string host() const override { return host_; }
  int host_rank() const override { return host_rank_; }

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
  GroupStore* own_;  // the same; null for torchrun's
  std::string host_;
  int host_rank_;
};

std::string host_of(const RankEnvironment& environment) {
  if (!environment.store_is_hosted) return "rank 0";
  return environment.source == "moonshard" ? "the launcher" : environment.source;
}

// torchrun's store speaks its own language and lets in everybody who reaches its port; a name that
// is made from the token, and does not tell it, keeps jobs apart there.
StorePointer connect_to_torchrun(const RankEnvironment& environment, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = environment.master_port;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  const std::string& address = environment.master_address;
  return c10::make_intrusive<c10d::PrefixStore>(
      "moonshard/" + hmac_sha256(environment.token, "name").substr(0, 16),
      c10::make_intrusive<c10d::TCPStore>(is_loopback(address) ? "127.0.0.1" : address, options));
}

// A server that is not there yet is waited for here: LibTorch would wait for twice the timeout,
// with stack traces in the log.
void wait_for_torchrun(const RankEnvironment& environment, double timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + milliseconds(timeout_s);
  const StorePlace place{{}, environment.master_address, environment.master_port};
  std::string reason;
  while (connect_to(place, reason).number() < 0) {
    if (std::chrono::steady_clock::now() >= deadline) throw IoError(reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

bool is_torchruns(const RankEnvironment& environment) {
  return environment.store_is_hosted && environment.source == "torchrun";
}

// One machine needs no port: the address and port given only name the job.
StorePlace place_of(const RankEnvironment& environment) {
  if (!environment.store_socket.empty()) return {environment.store_socket, "", 0};
  if (environment.one_machine && !environment.store_is_hosted) {
    const std::string name = hmac_sha256(environment.token, "name").substr(0, 16);
    return {store_socket(fmt::format("{}-{}", environment.master_port, name)), "", 0};
  }
  return {{}, environment.master_address, environment.master_port};
}

}  // namespace

struct RendezvousHost::State {
  State(const StorePlace& place, const std::string& token) : server(place, token) {
    board = std::make_shared<StoreBoard>(
        c10::make_intrusive<GroupStore>(server.place(), token, collective_timeout_s()),
        "the launcher", -1);
  }
  StoreServer server;
  std::shared_ptr<Board> board;
};

RendezvousHost::RendezvousHost(const std::string& token) {
  const std::string name = hmac_sha256(token, "name").substr(0, 16);
  const StorePlace place{store_socket(fmt::format("launcher-{}-{}", ::getpid(), name)), "", 0};
  state_ = std::make_unique<State>(place, token);
}

RendezvousHost::RendezvousHost(const std::string& token, const std::string& address)
    : state_(std::make_unique<State>(StorePlace{{}, address, 0}, token)) {}

RendezvousHost::~RendezvousHost() = default;

std::string RendezvousHost::store() const {
  const StorePlace& place = state_->server.place();
  if (!place.socket.empty()) return place.socket.string();
  return "tcp:" + to_text(place);
}

std::shared_ptr<Board> RendezvousHost::board() const {
  return state_->board;
}

struct Rendezvous::State {
  std::unique_ptr<StoreServer> server;  // rank 0's, unless the launcher hosts one
  StorePointer store;
  std::shared_ptr<Board> board;
};

Rendezvous::Rendezvous(const RankEnvironment& environment) : state_(std::make_unique<State>()) {
  keep_libtorch_quiet();
  ignore_broken_pipes();
  const double timeout_s = collective_timeout_s();
  const std::string host = host_of(environment);
  const bool torchruns = is_torchruns(environment);
  StorePlace place{{}, environment.master_address, environment.master_port};
  if (!torchruns) place = place_of(environment);
  if (environment.rank == 0 && !environment.store_is_hosted)
    state_->server = std::make_unique<StoreServer>(place, environment.token);
  const auto connect = [&]() -> StorePointer {
    if (torchruns) return connect_to_torchrun(environment, timeout_s);
    return c10::make_intrusive<GroupStore>(place, environment.token, timeout_s);
  };
  try {
    if (torchruns) wait_for_torchrun(environment, timeout_s);
    state_->store = connect();
    const StorePointer second = connect();
    state_->board =
        std::make_shared<StoreBoard>(second, host, environment.store_is_hosted ? -1 : 0);
    if (auto* own = dynamic_cast<GroupStore*>(second.get()))
      own->client().leave_behind(gone_key(environment.rank),
                                 "its connection to the job's store was closed: killed, or ended "
                                 "without a word");
  } catch (const std::exception& error) {
    throw IoError(fmt::format(
        "rendezvous: rank {} of {}: expected {} to listen at {} ({} says so), got no answer in "
        "{:.0f} s: {}; check that rank 0 runs, the address, the port (MASTER_ADDR, MASTER_PORT), "
        "and "
        "a firewall between the machines",
        environment.rank, environment.world, host, to_text(place), environment.source, timeout_s,
        short_text(error)));
  }
}

Rendezvous::~Rendezvous() = default;

c10d::Store* Rendezvous::store() const {
  return state_->store.get();
}

void Rendezvous::let_others_read() const {
  using namespace std::chrono_literals;
  constexpr size_t kOwn = 2;  // the connections of store and board
  const auto deadline = std::chrono::steady_clock::now() + 4s;
  while (state_->server != nullptr && state_->server->num_connections() > kOwn &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(20ms);
}

std::shared_ptr<Board> Rendezvous::board() const {
  return state_->board;
}

}  // namespace moonshard::comm
