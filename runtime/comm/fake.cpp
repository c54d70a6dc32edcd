// Simulates one rank of many on one device. Memory and computation are real; data from other ranks
// is replaced by this rank's own part, and a collective takes as long as the named link would: the
// stream (or the waiting thread) is held up for the modelled time. Groups share the device's one
// port to the others, as they do in reality: their transfers take turns. The trained weights are
// meaningless; time and memory are what is measured.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kernels/delay/delay.h"
#include "runtime/base/options.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/links.h"
#include "runtime/comm/world.h"
#include "runtime/core/streams.h"

namespace moonshard::comm {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

class FakePort {
 public:
  /// Until when a transfer has it that comes at `ready`.
  Clock::time_point take(Clock::time_point ready, std::chrono::nanoseconds transfer) {
    const std::lock_guard lock(mutex_);  // groups of other threads have it, too
    return free_ = std::max(free_, ready) + transfer;
  }

 private:
  std::mutex mutex_;
  Clock::time_point free_ = Clock::now();
};

namespace {

std::chrono::nanoseconds nanoseconds_of(double us) {
  return std::chrono::nanoseconds(static_cast<int64_t>(us * 1000));
}

class HostWork : public Communicator::Work {
 public:
  HostWork(Clock::time_point end, double modelled_ms) : end_(end), modelled_ms_(modelled_ms) {}
  ~HostWork() override {
    if (teller_.joinable()) teller_.join();
  }
  bool is_done() override { return Clock::now() >= end_; }
  void wait() override {
    std::this_thread::sleep_until(end_);
    if (teller_.joinable()) teller_.join();
  }
  // Only while a timeline is recorded.
  void when_done(std::function<void()> callback) override {
    teller_ = std::thread([end = end_, callback = std::move(callback)] {
      std::this_thread::sleep_until(end);
      callback();
    });
  }
  double modelled_ms() const override { return modelled_ms_; }

 private:
  Clock::time_point end_;
  double modelled_ms_;
  std::thread teller_;
};

class StreamWork : public Communicator::Work {
 public:
  StreamWork(c10::Device device, c10::Stream on, double modelled_ms)
      : device_(device), event_(device.type()), modelled_ms_(modelled_ms) {
    event_.record(on);
  }
  bool is_done() override { return event_.query(); }
  void wait() override {
    event_.block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  void when_done(std::function<void()>) override {}
  double modelled_ms() const override { return modelled_ms_; }

 private:
  c10::Device device_;
  c10::Event event_;
  double modelled_ms_;
};

class FakeCommunicator : public Communicator {
 public:
  FakeCommunicator(int rank, int size, const Link& link, c10::Device device,
                   std::shared_ptr<FakePort> port)
      : Communicator(rank, size, nullptr, device),
        link_(link),
        device_(device),
        port_(std::move(port)),
        free_(Clock::now()) {}
  const char* transport() const override { return "fake"; }

 protected:
  Started start_all_gather(at::Tensor whole, at::Tensor part) override {
    return run(share() * static_cast<double>(whole.nbytes()), [&] {
      const at::Tensor slots = whole.view({size(), part.numel()});
      const bool in_place = slots[rank()].data_ptr() == part.data_ptr();
      if (is_repeated_by_kernel(slots, part))
        return kernels::repeat_on_stream(slots.mutable_data_ptr(), part.const_data_ptr(),
                                         static_cast<int64_t>(part.nbytes()), size(),
                                         in_place ? rank() : -1, copies_->native_handle());
      const at::Tensor row = part.view({1, -1});
      const auto fill = [&](int first, int count) {
        if (count > 0) slots.narrow(0, first, count).copy_(row.expand({count, -1}), true);
      };
      fill(0, in_place ? rank() : size());
      if (in_place) fill(rank() + 1, size() - rank() - 1);
    });
  }
  Started start_reduce_scatter(at::Tensor part, at::Tensor whole) override {
    return run(share() * static_cast<double>(whole.nbytes()), [&] {
      const at::Tensor slot = whole.narrow(0, part.numel() * rank(), part.numel());
      if (slot.data_ptr() != part.data_ptr()) part.copy_(slot, true);
    });
  }
  Started start_all_reduce(at::Tensor tensor, Reduction) override {
    return run(2 * share() * static_cast<double>(tensor.nbytes()), [] {});
  }
  Started start_broadcast(at::Tensor tensor, int) override {
    return run(static_cast<double>(tensor.nbytes()), [] {});
  }

 private:
  // A copy that repeats a row is a third as fast, and takes more of the GPU from the computation
  // than a real all-gather does.
  static bool is_repeated_by_kernel(const at::Tensor& slots, const at::Tensor& part) {
    constexpr uintptr_t kVector = 16;
    const auto lies_well = [](const at::Tensor& tensor) {
      return tensor.is_cuda() &&
             reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kVector == 0;
    };
    return lies_well(slots) && lies_well(part) && part.is_contiguous() &&
           part.nbytes() % kVector == 0;
  }

  // What a ring transfers: all parts but this rank's own.
  double share() const { return static_cast<double>(size() - 1) / size(); }

  template <class Copy>
  Started run(double bytes, Copy copy) {
    const at::NoGradGuard no_grad;
    // Only bytes keep the port busy: another group's may pass while these are on their way.
    const double latency_us = size() == 1 ? 0 : link_.latency_us;
    const double port_us = size() == 1 ? 0 : bytes / link_.bytes_per_s * 1e6;
    const double us = latency_us + port_us;
    if (!device_.is_cuda()) {
      copy();
      // One collective of the group at a time.
      free_ = port_->take(std::max(free_, Clock::now()), nanoseconds_of(port_us)) +
              nanoseconds_of(latency_us);
      return std::make_shared<HostWork>(free_, us / 1000);
    }
    const c10::impl::VirtualGuardImpl guard(device_.type());
    if (!stream_) {
      stream_ = guard.getStreamFromGlobalPool(device_);
      copies_ = guard.getStreamFromGlobalPool(device_);
    }
    // Real collectives copy while they transfer: copies run beside the delay, and the longer
    // counts.
    run_after(guard.getStream(device_), *stream_);
    run_after(*stream_, *copies_);
    kernels::transfer_on_stream(port_us, latency_us, stream_->native_handle());
    {
      const c10::StreamGuard on(*copies_);
      copy();
    }
    run_after(*copies_, *stream_);
    return std::make_shared<StreamWork>(device_, *stream_, us / 1000);
  }

  Link link_;
  c10::Device device_;
  std::shared_ptr<FakePort> port_;
  Clock::time_point free_;
  std::optional<c10::Stream> stream_, copies_;
};

}  // namespace

std::shared_ptr<FakePort> make_fake_port() {
  return std::make_shared<FakePort>();
}

std::shared_ptr<Communicator> make_fake(int rank, int size, const std::string& link,
                                        c10::Device device, std::shared_ptr<FakePort> port) {
  return std::make_shared<FakeCommunicator>(rank, size, link_named(link), device, std::move(port));
}

}  // namespace moonshard::comm
