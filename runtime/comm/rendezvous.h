// Where the processes of a job meet: a key-value store at one address and port. The header needs no
// LibTorch, so that launcher and watchdog need none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/comm/pulse.h"
#include "runtime/comm/rank_environment.h"

namespace c10d {
class Store;
}

namespace moonshard::comm {

/// The launcher's side: a store on the loopback interface at a free port. It outlives any rank.
class RendezvousHost {
 public:
  explicit RendezvousHost(const std::string& token);
  ~RendezvousHost();
  uint16_t port() const;
  /// The job's board, as the ranks see it.
  std::shared_ptr<Board> board() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A rank's side: its own connection to the job's store; rank 0 hosts the store unless the launcher
/// does. Keys are prefixed with the job's token.
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
