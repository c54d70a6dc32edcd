// The job that this process belongs to: its rank, and groups to communicate through. A process
// without a launcher is a world of size 1.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "runtime/comm/communicator.h"
#include "runtime/comm/rank_environment.h"

namespace moonshard::comm {

class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool is_fake() const { return is_fake_; }
  /// 1, 2, …: numbers what all ranks make in the same order, for them to compare.
  int64_t next_number() { return ++numbers_; }
  /// The group of that name for tensors on this device, connected at its first use; all ranks must
  /// ask in the same order. Names in use: "train", "statistics", "script",
  /// "checkpoint", "checkpoint behind", "verify".
  virtual std::shared_ptr<Communicator> group(const std::string& name, c10::Device device) = 0;
  /// A group of some of the ranks: this one is number `rank` of `size` in it. The name tells it
  /// from those of the other ranks, which are made at the same time; all have their say in the same
  /// order.
  virtual std::shared_ptr<Communicator> part_group(const std::string& name, c10::Device device,
                                                   int rank, int size) = 0;
  /// The same for host tensors, for a thread beside the training. Its collectives have no numbers:
  /// their order among the others differs from rank to rank. A rank that is gone is an error here,
  /// too; one that hangs is found by the training's collectives.
  virtual std::shared_ptr<Communicator> background_group(const std::string& name) {
    return group(name, c10::kCPU);
  }

 protected:
  bool is_fake_ = false;

 private:
  std::atomic<int64_t> numbers_{0};
};

/// This process's world, from its environment. The rendezvous is joined at the first call of a
/// process that is a rank.
std::shared_ptr<World> this_world();

/// True when this process is one of several ranks; asks the environment only.
bool is_rank();

/// At the start of a process: "cuda" then means this rank's GPU.
void take_own_gpu();

/// "auto": this process's world; "fake:N": one rank of N on this device alone, with communication
/// that takes the time the link would. Throws UsageError.
std::shared_ptr<World> make_world(const std::string& name, const std::string& link);

/// drawn_seed(), the same for all ranks of the job. Whichever rank asks first decides; none waits
/// for another.
int64_t job_seed();

/// At the end of a rank's work, before the process ends: posts that it finished, so that a closed
/// connection is not taken for a failure. With an error text, posts that instead.
void leave_world(const std::string& error = "");

}  // namespace moonshard::comm
