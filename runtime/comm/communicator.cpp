#include "runtime/comm/communicator.h"

#include <cstdlib>
#include <mutex>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/base/check.h"
#include "runtime/base/plugin.h"
#include "runtime/comm/watchdog.h"
#include "runtime/profile/timeline.h"

namespace moonshard::comm {
namespace {

using MakeNccl = c10d::Backend*(c10d::Store*, const char*, int, int, int, double);

MakeNccl* find_maker() {
  static const Plugin library("moonshard_torch_cuda");
  MS_CHECK(library.absence().empty(),
           "nccl: expected the library {} for several ranks on GPUs, got none: {}; build with the "
           "CUDA toolkit and NCCL's header, or use device = \"cpu\"",
           library.path(), library.absence());
  auto* maker = library.function<MakeNccl>("moonshard_make_nccl");
  MS_CHECK(maker != nullptr,
           "nccl: expected NCCL in {}, got none; build it again with the CUDA toolkit and NCCL's "
           "header",
           library.path());
  return maker;
}

// Behind what the current stream has so far; null on a host, where nothing is behind.
std::shared_ptr<c10::Event> event_behind(c10::Device device) {
  if (!device.is_cuda()) return nullptr;
  auto event = std::make_shared<c10::Event>(device.type());
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

}  // namespace

// Shared with the watchdog, whose thread polls whether the work is done: before the transport has
// returned from starting it, and for a while after it was waited for. It must not keep the tensors
// alive after that: they are whole units of parameters.
struct Pending::State {
  std::mutex mutex;
  Communicator::Started work;
  std::shared_ptr<c10::Event> passed;  ///< event_behind the work
  bool started = false, waited_for = false;
  std::vector<at::Tensor> tensors;
  Watchdog* watchdog = nullptr;
  int64_t sequence = 0;
  std::string label;  ///< "all_gather blocks.3"
  bool in_background = false;

  bool is_done() {
    const std::lock_guard lock(mutex);
    try {
      if (waited_for) return passed == nullptr || passed->query();
      return started && (work == nullptr || work->is_done());
    } catch (...) {
      return false;  // failed: wait() throws
    }
  }
  void let_go() {
    auto event = event_behind(tensors[0].device());
    const std::lock_guard lock(mutex);
    passed = std::move(event);
    waited_for = true;
    work = nullptr;
    tensors.clear();
  }
  [[noreturn]] void fail(const std::exception& error) const {
    throw CommError(watchdog != nullptr ? watchdog->explain(sequence, error.what())
                                        : std::string("collective failed: ") + error.what());
  }
};

namespace {

// A span of the timeline that is being recorded. Messages between hosts of a GPU job are timed by
// the clock, on their own lane.
class CommSpan {
 public:
  CommSpan(const std::string& lane, const std::string& name, const at::Tensor& tensor,
           bool in_background, int64_t bytes = 0)
      : timeline_(in_background ? nullptr : profile::recording_timeline()) {
    if (timeline_ == nullptr) return;
    const bool on_host = timeline_->device().is_cuda() && !tensor.is_cuda();
    span_ = timeline_->begin((on_host ? profile::kHostLane : "") + lane, name, on_host);
    timeline_->set_bytes(span_, bytes);
  }
  bool records() const { return timeline_ != nullptr; }
  void set_modelled(double ms) const {
    if (timeline_ != nullptr && ms > 0) timeline_->set_modelled(span_, ms);
  }
  void end() const {
    if (timeline_ != nullptr) timeline_->end(span_);
  }

 private:
  std::shared_ptr<profile::Timeline> timeline_;
  size_t span_ = 0;
};

}  // namespace

void Pending::wait() {
  if (state_ == nullptr) return;
  const std::shared_ptr<State> state = std::move(state_);
  state_ = nullptr;
  const CommSpan exposed(profile::kExposedLane, state->label, state->tensors[0],
                         state->in_background);
  try {
    if (state->work != nullptr) state->work->wait();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    state->fail(error);
  }
  exposed.end();
  state->let_go();
}

Communicator::~Communicator() = default;

Pending Communicator::track(const char* operation, const std::string& about, int64_t bytes,
                            std::vector<at::Tensor> tensors,
                            const std::function<Started()>& start) {
  const auto known = std::find_if(traffic_.begin(), traffic_.end(),
                                  [&](const Traffic& t) { return t.operation == operation; });
  Traffic& sum = known != traffic_.end() ? *known : traffic_.emplace_back(Traffic{operation, 0, 0});
  ++sum.count;
  sum.bytes += bytes;

  const bool on_gpu = tensors[0].is_cuda();
  const c10::Device device = tensors[0].device();
  auto state = std::make_shared<Pending::State>();
  state->tensors = std::move(tensors);
  state->watchdog = is_captured_ ? nullptr : watchdog_;
  state->in_background = in_background_;
  if (state->watchdog != nullptr)
    state->sequence = watchdog_->begin(operation, about, [state] { return state->is_done(); });
  state->label = std::string(operation) + " " + about;
  // Groups do not wait for each other: each has a lane.
  const CommSpan working(profile::kCommLane + (name_.empty() ? "" : " " + name_), state->label,
                         state->tensors[0], in_background_, bytes);
  Started work;
  try {
    work = start();
  } catch (const c10::OutOfMemoryError&) {
    throw;  // out of memory is this rank's own status, not a failure of another rank
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    state->fail(error);
  }
  {
    const std::lock_guard lock(state->mutex);
    state->work = work;
    state->started = true;
  }
  if (working.records()) {
    if (work != nullptr) working.set_modelled(work->modelled_ms());
    if (work == nullptr) {
      working.end();
    } else if (on_gpu) {
      // Its end is an event behind the work, on a stream that nothing else uses.
      const c10::impl::VirtualGuardImpl guard(device.type());
      const c10::StreamGuard aside(guard.getStreamFromGlobalPool(device));
      work->wait();
      working.end();
    } else {
      work->when_done([working] { working.end(); });
    }
  }
  return Pending(std::move(state));
}

Pending Communicator::all_gather(const at::Tensor& whole, const at::Tensor& part,
                                 const std::string& about) {
  MS_ASSERT(whole.numel() == part.numel() * size_ && whole.scalar_type() == part.scalar_type(),
            "all_gather of {}: {} parts of {} into {}", about, size_, part.numel(), whole.numel());
  return track("all_gather", about, static_cast<int64_t>(whole.nbytes()), {whole, part},
               [&] { return start_all_gather(whole, part); });
}

Pending Communicator::reduce_scatter(const at::Tensor& part, const at::Tensor& whole,
                                     const std::string& about) {
  MS_ASSERT(whole.numel() == part.numel() * size_ && whole.scalar_type() == part.scalar_type(),
            "reduce_scatter of {}: {} into {} parts of {}", about, whole.numel(), size_,
            part.numel());
  return track("reduce_scatter", about, static_cast<int64_t>(whole.nbytes()), {part, whole},
               [&] { return start_reduce_scatter(part, whole); });
}

Pending Communicator::all_reduce(const at::Tensor& tensor, const std::string& about,
                                 Reduction reduction) {
  return track("all_reduce", about, static_cast<int64_t>(tensor.nbytes()), {tensor},
               [&] { return start_all_reduce(tensor, reduction); });
}

Pending Communicator::broadcast(const at::Tensor& tensor, int root, const std::string& about) {
  MS_CHECK(root >= 0 && root < size_, "broadcast: expected a rank from 0 to {}, got {}", size_ - 1,
           root);
  return track("broadcast", about, static_cast<int64_t>(tensor.nbytes()), {tensor},
               [&] { return start_broadcast(tensor, root); });
}

void Communicator::barrier(const std::string& about) {
  const at::Tensor one = at::ones({1}, at::TensorOptions().dtype(at::kInt).device(device_));
  track("barrier", about, 0, {one}, [&] { return start_all_reduce(one, Reduction::Sum); }).wait();
  one.cpu();  // on a GPU only the stream has waited so far
}

void Communicator::watch_replay() {
  if (watchdog_ == nullptr) return;
  watchdog_->begin("replay", "step", [passed = event_behind(device_)] {
    try {
      return passed == nullptr || passed->query();
    } catch (...) {
      return false;
    }
  });
}

void leave_watching_to_us() {
  // NCCL's own watchdog would end the process with a core dump that does not name the missing rank,
  // before ours has reported.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 0);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);
  // LibTorch's record of recent collectives has a table of groups without a lock (2.11): the first
  // collective of one group, beside any collective of another on another thread, ends in a crash.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", 0);
}

namespace {

class SingleCommunicator : public Communicator {
 public:
  SingleCommunicator() : Communicator(0, 1, nullptr) {}
  const char* transport() const override { return "single"; }

 protected:
  Started start_all_gather(at::Tensor whole, at::Tensor part) override { return copy(whole, part); }
  Started start_reduce_scatter(at::Tensor part, at::Tensor whole) override {
    return copy(part, whole);
  }
  Started start_all_reduce(at::Tensor, Reduction) override { return nullptr; }
  Started start_broadcast(at::Tensor, int) override { return nullptr; }

 private:
  static Started copy(at::Tensor& to, const at::Tensor& from) {
    const at::NoGradGuard no_grad;
    if (to.data_ptr() != from.data_ptr()) to.copy_(from, /*non_blocking=*/true);
    return nullptr;
  }
};

}  // namespace

std::shared_ptr<Communicator> make_single() {
  return std::make_shared<SingleCommunicator>();
}

std::shared_ptr<Communicator> make_nccl(c10d::Store* store, const GroupOptions& options) {
  static MakeNccl* const make = find_maker();
  leave_watching_to_us();
  return wrap_backend(make(store, options.name.c_str(), options.rank, options.size,
                           options.device.index(), options.timeout_s + 3600),
                      "nccl", options);
}

}  // namespace moonshard::comm
