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

/// The launcher's side. It outlives any rank.
class RendezvousHost {
 public:
  /// A store at a socket of this user alone.
  explicit RendezvousHost(const std::string& token);
  /// For a job of several machines: at an address of this one, on a free port.
  RendezvousHost(const std::string& token, const std::string& address);
  ~RendezvousHost();
  /// What ranks see in MOONSHARD_STORE.
  std::string store() const;
  /// The job's board, as the ranks see it.
  std::shared_ptr<Board> board() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A rank's side: its own connection to the job's store; rank 0 hosts the store unless the launcher
/// does. Across machines the store sets gone_key(rank) when the rank's connection ends. From here
/// on the process ignores SIGPIPE.
class Rendezvous {
 public:
  explicit Rendezvous(const RankEnvironment& environment);
  ~Rendezvous();
  /// For process groups, which add their own prefix. Owned by the rendezvous (intrusively counted).
  c10d::Store* store() const;
  /// Uses a separate connection: never waits behind a process group's requests.
  std::shared_ptr<Board> board() const;
  /// In a rank that has failed and hosts the store: gives the others a few seconds to read there
  /// why. Without it they would blame this rank, with which the board is lost.
  void let_others_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moonshard::comm
