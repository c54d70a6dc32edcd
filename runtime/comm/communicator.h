// Collectives among the ranks of one group, over LibTorch's c10d: Gloo on hosts, NCCL on GPUs, or a
// fake group that models the time. Every collective is asynchronous, numbered, and watched.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "runtime/base/errors.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace moonshard::comm {

class Watchdog;

/// A collective failed: a rank is gone, or did not join. The text names it.
class CommError : public Error {
 public:
  using Error::Error;
};

enum class Reduction { Sum, Max, Min };

/// A collective in progress. Tensors are kept alive until it is waited for.
class Pending {
 public:
  struct State;
  Pending() = default;
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// On the CPU blocks until it is done; on a GPU the current stream waits. Throws CommError.
  void wait();

 private:
  std::shared_ptr<State> state_;
};

/// What has been sent since the last reset.
struct Traffic {
  std::string operation;
  int64_t count = 0, bytes = 0;
};

class Communicator {
 public:
  /// In progress in a transport.
  class Work {
   public:
    virtual ~Work() = default;
    virtual bool is_done() = 0;
    virtual void wait() = 0;
    /// Called once when it is done, on any thread; on the CPU only.
    virtual void when_done(std::function<void()> callback) = 0;
    /// Of a modelled collective: its duration on an otherwise idle device.
    virtual double modelled_ms() const { return 0; }
  };
  using Started = std::shared_ptr<Work>;

  virtual ~Communicator();
  int rank() const { return rank_; }
  /// For the lanes of timelines: "" is the group that trains.
  void set_name(std::string name) { name_ = std::move(name); }
  /// Its collectives are another thread's, and in no timeline.
  void set_in_background() { in_background_ = true; }
  int size() const { return size_; }
  /// From here on collectives are recorded into a CUDA graph: nothing runs that could be watched.
  void set_captured(bool captured) { is_captured_ = captured; }
  /// A graph with collectives of this group was launched on the current stream. They are watched as
  /// one.
  void watch_replay();
  /// "single", "gloo", "nccl" or "fake".
  virtual const char* transport() const = 0;

  // `about` labels the collective in reports and traces, e.g. the unit's name.
  /// whole [size * n] = the parts [n] of all ranks, in their order. One is a range of the other, or
  /// they do not overlap.
  Pending all_gather(const at::Tensor& whole, const at::Tensor& part, const std::string& about);
  /// part [n] = this rank's part of the sum of all ranks' whole [size * n].
  Pending reduce_scatter(const at::Tensor& part, const at::Tensor& whole, const std::string& about);
  Pending all_reduce(const at::Tensor& tensor, const std::string& about,
                     Reduction reduction = Reduction::Sum);
  Pending broadcast(const at::Tensor& tensor, int root, const std::string& about);
  /// Returns when every rank has called it.
  void barrier(const std::string& about);

  std::vector<Traffic> traffic() const { return traffic_; }
  void reset_traffic() { traffic_.clear(); }

 protected:
  Communicator(int rank, int size, Watchdog* watchdog, c10::Device device = c10::kCPU)
      : rank_(rank), size_(size), watchdog_(watchdog), device_(device) {}

  virtual Started start_all_gather(at::Tensor whole, at::Tensor part) = 0;
  virtual Started start_reduce_scatter(at::Tensor part, at::Tensor whole) = 0;
  virtual Started start_all_reduce(at::Tensor tensor, Reduction reduction) = 0;
  virtual Started start_broadcast(at::Tensor tensor, int root) = 0;

 private:
  friend struct Pending::State;
  Pending track(const char* operation, const std::string& about, int64_t bytes,
                std::vector<at::Tensor> tensors, const std::function<Started()>& start);

  int rank_, size_;
  std::string name_;
  bool in_background_ = false, is_captured_ = false;
  Watchdog* watchdog_;
  c10::Device device_;
  std::vector<Traffic> traffic_;
};

/// A group of one: every collective is a copy, or nothing.
std::shared_ptr<Communicator> make_single();

/// Factories of process groups: real ones, and the simulated one.
struct GroupOptions {
  std::string name;
  int rank = 0, size = 1;
  double timeout_s = 300;
  std::string address = "127.0.0.1";  ///< of this machine, where the other ranks reach it
  Watchdog* watchdog = nullptr;
  c10::Device device = c10::kCPU;
};

std::shared_ptr<Communicator> make_gloo(c10d::Store* store, const GroupOptions& options);
/// Throws UsageError where this build or this machine has no NCCL.
std::shared_ptr<Communicator> make_nccl(c10d::Store* store, const GroupOptions& options);
/// What all simulated groups of a host send through: their transfers take turns.
class FakePort;
std::shared_ptr<FakePort> make_fake_port();
/// One rank of `size`; collectives take the time the link would. Those on a GPU take turns with all
/// others on it, those on the host with all others of the port.
std::shared_ptr<Communicator> make_fake(int rank, int size, const std::string& link,
                                        c10::Device device, std::shared_ptr<FakePort> port);

/// Turns off what LibTorch would do beside our watchdog, unless the environment wants it. Before
/// the first of its groups is made.
void leave_watching_to_us();

/// Takes the reference over.
std::shared_ptr<Communicator> wrap_backend(c10d::Backend* backend, const char* transport,
                                           const GroupOptions& options);

}  // namespace moonshard::comm
