// Where the processes of a job meet: a key-value store (job_store.h). The header needs no LibTorch,
// so that launcher and watchdog need none.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/comm/pulse.h"
#include "runtime/comm/rank_environment.h"

namespace c10d {
class Store;
}

namespace moonshard::comm {

/// The launcher's side: a store at a socket of this user alone. It outlives any rank.
class RendezvousHost {
 public:
  explicit RendezvousHost(const std::string& token);
  ~RendezvousHost();
  std::filesystem::path socket() const;
  /// The job's board, as the ranks see it.
  std::shared_ptr<Board> board() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A rank's side: its own connection to the job's store; rank 0 hosts the store unless the launcher
/// does. From here on the process ignores SIGPIPE.
class Rendezvous {
 public:
  explicit Rendezvous(const RankEnvironment& environment);
  ~Rendezvous();
  /// For process groups, which add their own prefix. Owned by the rendezvous (intrusively counted).
  c10d::Store* store() const;
  /// Uses a separate connection: never waits behind a process group's requests.
  std::shared_ptr<Board> board() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moonshard::comm
