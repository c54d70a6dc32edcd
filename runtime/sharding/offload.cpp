// With offload: copies between host and device, and work on the host beside the device's.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "runtime/core/streams.h"
#include "runtime/profile/context.h"
#include "runtime/sharding/unit.h"

namespace moonshard::sharding {
namespace {

// Gradients that may be on their way before the computation waits for the oldest: enough to keep
// the link busy.
constexpr int64_t kLeavingBytes = int64_t{1} << 30;
constexpr size_t kAdditionsBeside = 8;

c10::Stream pool_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

}  // namespace

c10::Stream ShardingContext::copy_stream() {
  if (!copies_) copies_ = pool_stream(device);
  return *copies_;
}

// A stream of its own: the computation goes on, and parameters come the other way meanwhile.
at::Tensor ShardingContext::brought_home(const at::Tensor& gradient) {
  if (!home_copies_) home_copies_ = pool_stream(device);
  // The allocator keeps pinned memory, and finds blocks of earlier units and steps.
  const at::Tensor host =
      at::empty(gradient.sizes(), gradient.options().device(c10::kCPU).pinned_memory(true));
  const c10::Stream compute = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  run_after(compute, *home_copies_);
  {
    const c10::StreamGuard beside(*home_copies_);
    host.copy_(gradient, /*non_blocking=*/true);
  }
  leavers_.push_back({gradient, std::make_shared<c10::Event>(device.type())});
  leavers_.back().gone->record(*home_copies_);
  // The device's memory is used again by later work of the compute stream: not before the copy.
  int64_t bytes = 0;
  for (const Leaver& leaver : leavers_) bytes += static_cast<int64_t>(leaver.gradient.nbytes());
  while (leavers_.size() > 1) {
    const bool is_gone = leavers_.front().gone->query();
    if (!is_gone && bytes <= kLeavingBytes) break;
    if (!is_gone) leavers_.front().gone->block(compute);
    bytes -= static_cast<int64_t>(leavers_.front().gradient.nbytes());
    leavers_.pop_front();
  }
  return host;
}

std::shared_ptr<c10::Event> ShardingContext::arrival() {
  if (!home_copies_) return nullptr;
  auto event = std::make_shared<c10::Event>(device.type());
  event->record(*home_copies_);
  return event;
}

void ShardingContext::when_home(std::function<void()> work) {
  // The device of a thread is the first one until it is told: the rank's may be another.
  const auto own = device.is_cpu() ? std::nullopt : std::optional<c10::Device>(device);
  worker_.add(
      [own, work = std::move(work), arrived = arrival(), context = profile::current_context()] {
        const profile::ContextScope scope(context);
        const c10::OptionalDeviceGuard here(own);
        if (arrived != nullptr) arrived->synchronize();
        work();
      });
}

void ShardingContext::add_at_home(const at::Tensor& sum, const at::Tensor& gradient) {
  worker_.wait(kAdditionsBeside);
  when_home([sum, gradient] {
    const at::NoGradGuard no_grad;
    at::Tensor to = sum;
    to.add_(gradient);
  });
}

void ShardingContext::wait_for_home() {
  worker_.wait();
  if (!home_copies_) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(*home_copies_);
  leavers_.clear();
}

}  // namespace moonshard::sharding
