#include "runtime/comm/job_store.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/comm/store_socket.h"

namespace moonshard::comm {
namespace {

using StoreClock = std::chrono::steady_clock;
constexpr auto kHandshake = std::chrono::seconds(10);
constexpr size_t kMaxConnections = 8192;

// One letter each, the first field of a request.
constexpr char kSet = 'S', kRead = 'R', kHas = 'H', kAdd = 'A', kCompareSet = 'C', kRemove = 'D',
               kCount = 'N', kReadAll = 'M', kLeave = 'L';

int64_t number_of(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// The first field of an answer: whether there was one. A request that is none gets no answer.
using Table = std::map<std::string, std::string>;
std::optional<std::string> answer(Table& table, const std::vector<std::string>& fields) {
  if (fields.empty() || fields[0].size() != 1) return std::nullopt;
  const char operation = fields[0][0];
  const size_t arguments = fields.size() - 1;
  if (operation == kCount && arguments == 0) return pack({"1", std::to_string(table.size())});
  if (operation == kHas) {
    const bool all = std::all_of(fields.begin() + 1, fields.end(),
                                 [&](const std::string& key) { return table.contains(key); });
    return pack({all ? "1" : "0"});
  }
  if (operation == kReadAll) {
    std::vector<std::string_view> answers{"1"};
    for (size_t i = 1; i < fields.size(); ++i) {
      const auto found = table.find(fields[i]);
      answers.emplace_back(found != table.end() ? "1" : "0");
      answers.emplace_back(found != table.end() ? std::string_view(found->second) : "");
    }
    return pack(answers);
  }
  if (arguments < 1) return std::nullopt;
  const std::string& key = fields[1];
  const auto found = table.find(key);
  if (operation == kRead && arguments == 1)
    return found != table.end() ? pack({"1", found->second}) : pack({"0"});
  if (operation == kRemove && arguments == 1) return pack({table.erase(key) > 0 ? "1" : "0"});
  if (operation == kSet && arguments == 2) {
    table[key] = fields[2];
    return pack({"1"});
  }
  if (operation == kAdd && arguments == 2) {
    std::string& value = table[key];
    value = std::to_string(static_cast<int64_t>(static_cast<uint64_t>(number_of(value)) +
                                                static_cast<uint64_t>(number_of(fields[2]))));
    return pack({"1", value});
  }
  if (operation == kCompareSet && arguments == 3) {
    if (found == table.end() && !fields[2].empty()) return pack({"1", fields[2]});
    std::string& value = table[key];
    if (value == fields[2]) value = fields[3];
    return pack({"1", value});
  }
  return std::nullopt;
}

// Sockets of servers that were killed. Young ones are left: one that was just made does not listen
// yet.
void remove_dead_sockets(const std::filesystem::path& folder) {
  std::error_code ignored;
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1);
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    std::string reason;
    if (entry.path().extension() == ".store" && entry.is_socket(ignored) &&
        entry.last_write_time(ignored) < old &&
        connect_to({entry.path(), "", 0}, reason).number() < 0)
      std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace

std::filesystem::path store_socket(const std::string& name) {
  return user_folder() / (name + ".store");
}

// ---- server -----------------------------------------------------------------------------------

// One thread for all: requests are answered in the order they come.
struct StoreServer::State {
  struct Connection {
    Descriptor socket;
    std::string nonce;
    bool has_proved = false;
    StoreClock::time_point since;
    std::string in, out;
    Table left_behind;  // set when it ends
  };

  StorePlace place;
  std::string token;
  Descriptor listener, wake;
  std::vector<Connection> connections;
  std::atomic<size_t> num_connections{0};
  Table table;
  std::thread thread;

  void run() {
    std::vector<pollfd> polled;
    while (true) {
      polled = {{wake.number(), POLLIN, 0}, {listener.number(), POLLIN, 0}};
      for (const Connection& each : connections) {
        const short what = static_cast<short>(POLLIN | (each.out.empty() ? 0 : POLLOUT));
        polled.push_back({each.socket.number(), what, 0});
      }
      if (::poll(polled.data(), polled.size(), 1000) < 0 && errno != EINTR) return;
      if (polled[0].revents != 0) return;
      for (size_t i = 0; i < connections.size(); ++i)
        if (!serve(connections[i], polled[i + 2].revents)) end(connections[i]);
      std::erase_if(connections, [](const Connection& each) { return each.socket.number() < 0; });
      if (polled[1].revents != 0) accept();
      num_connections.store(connections.size());
    }
  }

  void end(Connection& connection) {
    connection.socket.close();
    for (const auto& [key, value] : connection.left_behind) table[key] = value;
  }

  void accept() {
    Descriptor socket(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.number() < 0) {
      // Without a descriptor the request stays, and poll would spin on it.
      if (errno == EMFILE || errno == ENFILE)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return;
    }
    if (!is_own_user(socket.number()) || connections.size() >= kMaxConnections) return;
    Connection made;
    made.socket = std::move(socket);
    made.nonce = make_nonce();
    made.since = StoreClock::now();
    made.out = std::string(kGreeting) + made.nonce;
    connections.push_back(std::move(made));
  }

  // False when the connection is to be closed.
  bool serve(Connection& connection, short events) {
    if (!connection.has_proved && StoreClock::now() - connection.since > kHandshake) return false;
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !take(connection)) return false;
    while (!connection.out.empty()) {
      const ssize_t sent = ::send(connection.socket.number(), connection.out.data(),
                                  connection.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return errno == EAGAIN;
      connection.out.erase(0, static_cast<size_t>(sent));
    }
    return true;
  }

  bool take(Connection& connection) {
    char piece[65536];
    while (true) {
      const ssize_t got = ::recv(connection.socket.number(), piece, sizeof piece, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) break;
      if (got <= 0) return false;
      connection.in.append(piece, static_cast<size_t>(got));
      if (!connection.has_proved && connection.in.size() > kNonceBytes + kProofBytes) return false;
      if (static_cast<size_t>(got) < sizeof piece) break;
    }
    if (!connection.has_proved) return check_proof(connection);
    size_t at = 0;
    while (connection.in.size() - at >= 4) {
      const size_t size = size_field(std::string_view(connection.in).substr(at));
      if (size > kMaxStoreMessage) return false;
      if (connection.in.size() - at - 4 < size) break;
      const auto fields = unpack(std::string_view(connection.in).substr(at + 4, size));
      const auto text = fields ? answer_to(connection, *fields) : std::nullopt;
      if (!text) return false;
      connection.out += *text;
      at += 4 + size;
    }
    connection.in.erase(0, at);
    return true;
  }

  std::optional<std::string> answer_to(Connection& connection,
                                       const std::vector<std::string>& fields) {
    if (fields.size() != 3 || fields[0] != std::string_view(&kLeave, 1))
      return answer(table, fields);
    connection.left_behind[fields[1]] = fields[2];
    return pack({"1"});
  }

  bool check_proof(Connection& connection) const {
    if (connection.in.size() < kNonceBytes + kProofBytes) return true;
    const std::string client_nonce = connection.in.substr(0, kNonceBytes);
    if (!equal_proofs(connection.in.substr(kNonceBytes),
                      proof_of("client", token, connection.nonce, client_nonce)))
      return false;
    connection.has_proved = true;
    connection.in.clear();
    connection.out += proof_of("server", token, connection.nonce, client_nonce);
    return true;
  }
};

StoreServer::StoreServer(const StorePlace& place, const std::string& token)
    : state_(std::make_unique<State>()) {
  state_->place = place;
  state_->token = token;
  if (!place.socket.empty()) remove_dead_sockets(place.socket.parent_path());
  state_->listener = listen_at(state_->place);
  state_->wake = Descriptor(::eventfd(0, EFD_CLOEXEC));
  // An interrupt must reach the thread that runs Lua.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StoreServer::~StoreServer() {
  const uint64_t one = 1;
  if (::write(state_->wake.number(), &one, sizeof one) == sizeof one) state_->thread.join();
  if (!state_->place.socket.empty()) ::unlink(state_->place.socket.c_str());
}

size_t StoreServer::num_connections() const {
  return state_->num_connections.load();
}

const StorePlace& StoreServer::place() const {
  return state_->place;
}

// ---- client -----------------------------------------------------------------------------------

struct StoreClient::State {
  std::mutex mutex;
  Descriptor socket;

  // One attempt to get in. False when the next may succeed: the server may start later, and a
  // network that loses packets may let its patience run out. Throws when the server is not ours.
  bool greet(const StorePlace& place, const std::string& token, StoreDeadline deadline,
             std::string& reason) {
    socket = connect_to(place, reason);
    if (socket.number() < 0) return false;
    if (!is_own_user(socket.number())) throw IoError("the store belongs to another user");
    const auto began = StoreClock::now();
    deadline = std::min(deadline, began + kHandshake);
    std::string hello, proof;
    const std::string own = make_nonce();
    try {
      hello = receive(socket.number(), kGreeting.size() + kNonceBytes, deadline);
    } catch (const IoError& error) {
      reason = error.what();
      return false;
    }
    if (!hello.starts_with(kGreeting)) throw IoError("another program listens there");
    const std::string_view nonce = std::string_view(hello).substr(kGreeting.size());
    try {
      send_all(socket.number(), own + proof_of("client", token, nonce, own), deadline);
      proof = receive(socket.number(), kProofBytes, deadline);
    } catch (const IoError& error) {
      if (StoreClock::now() - began < kHandshake / 2)
        throw IoError("the store refused this job's token: it belongs to another job");
      reason = error.what();
      return false;
    }
    if (!equal_proofs(proof, proof_of("server", token, nonce, own)))
      throw IoError("the store does not know this job's token: it belongs to another job");
    return true;
  }

  std::chrono::milliseconds timeout{};
  std::string failure;  // of an earlier call: half an answer may be on the wire

  std::vector<std::string> ask(const std::vector<std::string_view>& fields) {
    const std::string message = pack(fields);
    const std::lock_guard lock(mutex);
    if (!failure.empty()) throw IoError(failure);
    try {
      const StoreDeadline deadline = StoreClock::now() + timeout;
      send_all(socket.number(), message, deadline);
      const size_t size = size_field(receive(socket.number(), 4, deadline));
      if (size > kMaxStoreMessage) throw IoError("an answer that is too long");
      auto answered = unpack(receive(socket.number(), size, deadline));
      if (!answered || answered->empty()) throw IoError("an answer that is none");
      return std::move(*answered);
    } catch (const IoError& error) {
      failure = error.what();
      throw;
    }
  }
};

StoreClient::StoreClient(const StorePlace& place, const std::string& token, double timeout_s)
    : state_(std::make_unique<State>()) {
  state_->timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  const StoreDeadline deadline = StoreClock::now() + state_->timeout;
  std::string reason;
  while (!state_->greet(place, token, deadline, reason)) {
    if (StoreClock::now() >= deadline) throw IoError(reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

StoreClient::~StoreClient() = default;

void StoreClient::set(const std::string& key, const std::string& value) {
  state_->ask({std::string_view(&kSet, 1), key, value});
}

std::optional<std::string> StoreClient::read(const std::string& key) {
  auto fields = state_->ask({std::string_view(&kRead, 1), key});
  if (fields.size() < 2) return std::nullopt;
  return std::move(fields[1]);
}

std::vector<std::optional<std::string>> StoreClient::read_all(
    const std::vector<std::string>& keys) {
  std::vector<std::string_view> asked{std::string_view(&kReadAll, 1)};
  asked.insert(asked.end(), keys.begin(), keys.end());
  auto fields = state_->ask(asked);
  std::vector<std::optional<std::string>> values(keys.size());
  for (size_t i = 0; i < keys.size() && 2 * i + 2 < fields.size(); ++i)
    if (fields[2 * i + 1] == "1") values[i] = std::move(fields[2 * i + 2]);
  return values;
}

void StoreClient::leave_behind(const std::string& key, const std::string& value) {
  state_->ask({std::string_view(&kLeave, 1), key, value});
}

bool StoreClient::has_all(const std::vector<std::string>& keys) {
  std::vector<std::string_view> fields{std::string_view(&kHas, 1)};
  fields.insert(fields.end(), keys.begin(), keys.end());
  return state_->ask(fields)[0] == "1";
}

int64_t StoreClient::add(const std::string& key, int64_t number) {
  const auto fields = state_->ask({std::string_view(&kAdd, 1), key, std::to_string(number)});
  return fields.size() > 1 ? number_of(fields[1]) : 0;
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& value) {
  auto fields = state_->ask({std::string_view(&kCompareSet, 1), key, expected, value});
  return fields.size() > 1 ? std::move(fields[1]) : "";
}

bool StoreClient::remove(const std::string& key) {
  return state_->ask({std::string_view(&kRemove, 1), key})[0] == "1";
}

int64_t StoreClient::count() {
  const auto fields = state_->ask({std::string_view(&kCount, 1)});
  return fields.size() > 1 ? number_of(fields[1]) : 0;
}

}  // namespace moonshard::comm
