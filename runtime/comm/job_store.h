// The key-value store in which the processes of a job meet: a server in the launcher or in rank 0,
// a client in every rank. Needs no LibTorch.
//
// Who may use it. On one machine it is a Unix socket in a folder of this user alone. Across
// machines it is a TCP port that anyone on the network reaches. Either way both sides prove that
// they know the job's token before anything else is said, by HMAC-SHA-256 of two random numbers,
// one from each side; the token itself is never sent and never stored. What follows is neither
// encrypted nor signed: whoever can change packets on the wire can change the store.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moonshard::comm {

/// A Unix socket when it has a path, else an address and a port.
struct StorePlace {
  std::filesystem::path socket;
  std::string address;
  uint16_t port = 0;
};
std::string to_text(const StorePlace& place);

/// A socket's path in user_folder().
std::filesystem::path store_socket(const std::string& name);

class StoreServer {
 public:
  /// Port 0 takes a free one. Throws IoError when somebody listens there already.
  StoreServer(const StorePlace& place, const std::string& token);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  const StorePlace& place() const;
  /// Connections at this moment, those of this process among them.
  size_t num_connections() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One connection; calls from several threads wait for each other. All throw IoError when the
/// server is gone or does not answer in time.
class StoreClient {
 public:
  /// Waits until a server listens there, at most this long, which is also the limit of each call.
  StoreClient(const StorePlace& place, const std::string& token, double timeout_s);
  ~StoreClient();

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> read(const std::string& key);
  /// The values of several keys in one message: the way there and back may be long.
  std::vector<std::optional<std::string>> read_all(const std::vector<std::string>& keys);
  /// What the server sets when this connection ends, however it does: the process behind it is
  /// gone.
  void leave_behind(const std::string& key, const std::string& value);
  bool has_all(const std::vector<std::string>& keys);
  /// To the number under the key, from 0. Returns the sum.
  int64_t add(const std::string& key, int64_t number);
  /// Takes the new value where the old one is as expected, or missing and "" expected. Returns what
  /// stands there now; `expected` where nothing does.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& value);
  bool remove(const std::string& key);
  int64_t count();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moonshard::comm
