// What a rank posts about itself on the board: a heartbeat, which collectives it has begun, how it
// ended. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moonshard::comm {

/// A small key-value table that all processes of a job share: state and failures of each rank.
/// Backed by the rendezvous store; tests keep it in memory.
class Board {
 public:
  virtual ~Board() = default;
  /// Throws IoError when the board cannot be reached.
  virtual void post(const std::string& key, const std::string& text) = 0;
  /// Does not wait for a key: empty when nothing was posted under it. Throws as post does.
  virtual std::optional<std::string> read(const std::string& key) = 0;
  /// The same for several keys, where it matters in one message.
  virtual std::vector<std::optional<std::string>> read_all(const std::vector<std::string>& keys) {
    std::vector<std::optional<std::string>> texts;
    for (const std::string& key : keys) texts.push_back(read(key));
    return texts;
  }
  /// Which process hosts the board, for reports: "the launcher", "rank 0".
  virtual std::string host() const { return "the launcher"; }
  /// Its rank; -1 when no rank hosts it. With that rank the board is lost.
  virtual int host_rank() const { return -1; }
};

/// Identifies a process, so that ranks of the same machine can check whether it still runs.
struct ProcessIdentity {
  int64_t pid = 0;
  uint64_t start_time = 0;  ///< pids are reused; pid and start time together are not
  std::string machine;      ///< boot id and pid namespace
};

enum class Life { Alive, Stopped, Gone, Unknown };

ProcessIdentity this_process();
/// Unknown for a process of another machine.
Life look_at(const ProcessIdentity& process);

struct Collective {
  int64_t number = 0;
  std::string operation, about;
  bool is_done = false;
};

/// "collective 17 (all_reduce of 'norms')"
std::string name_of(const Collective& collective);

enum class RankState {
  Running,
  Finished,  ///< in good order
  Failed,    ///< by an error of its own
  GaveUp     ///< because a collective failed or never ended
};

struct Pulse {
  int64_t beat = 0;  ///< grows while the rank lives
  ProcessIdentity process;
  RankState state = RankState::Running;
  std::string error;               ///< of a rank that failed or gave up
  int64_t started = 0;             ///< number of the last collective begun
  std::vector<Collective> recent;  ///< the last ones begun, and the oldest that is not done
};

std::string to_text(const Pulse& pulse);
/// Empty when the text is no pulse: the board is untrusted input, as others on the machine can
/// write to it.
std::optional<Pulse> read_pulse(const std::string& text);

/// "in collective 16 (barrier)", "after collective 16 (barrier)" or "before any collective".
std::string describe_position(const Pulse& pulse);

/// Keys of the board: a rank's pulse; how its process ended, posted by the launcher; that its
/// process is gone, posted by another rank of its machine.
std::string pulse_key(int rank);
std::string end_key(int rank);
std::string gone_key(int rank);

}  // namespace moonshard::comm
