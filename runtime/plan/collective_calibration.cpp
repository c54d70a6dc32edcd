#include "runtime/plan/collective_calibration.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/profile/utilization.h"

namespace moonshard::plan {
namespace {

constexpr int64_t kSmallestBytes = 1 << 12, kLargestBytes = 1 << 26, kGrowth = 4;

class CollectiveTimer {
 public:
  CollectiveTimer(comm::World& world, c10::Device device, double seconds)
      : world_(world), device_(device), group_(world.group("script", device)), seconds_(seconds) {}

  std::vector<CollectiveRate> all() {
    const int64_t n = world_.size();
    int64_t sizes = 0;
    for (int64_t bytes = kSmallestBytes; bytes <= kLargestBytes; bytes *= kGrowth) ++sizes;
    const double each = seconds_ / static_cast<double>(3 * sizes);
    for (int64_t bytes = kSmallestBytes; bytes <= kLargestBytes; bytes *= kGrowth) {
      const int64_t part_size = std::max<int64_t>(1, bytes / 4 / n);
      const auto options = at::TensorOptions().dtype(at::kFloat).device(device_);
      const at::Tensor whole = at::ones({part_size * n}, options),
                       part = at::ones({part_size}, options);
      const double size = static_cast<double>(whole.nbytes());
      time("all_gather", size, each,
           [&] { group_->all_gather(whole, part, "calibration").wait(); });
      time("reduce_scatter", size, each,
           [&] { group_->reduce_scatter(part, whole, "calibration").wait(); });
      time("all_reduce", size, each, [&] { group_->all_reduce(whole, "calibration").wait(); });
    }
    return std::move(rates_);
  }

 private:
  // As often on every rank: the first two decide how often.
  void time(const char* operation, double bytes, double seconds,
            const std::function<void()>& once) {
    once();
    const double first = slowest(timed(once));
    const auto count =
        std::clamp<int64_t>(static_cast<int64_t>(seconds / std::max(first, 1e-6)), 3, 200);
    std::vector<double> times;
    core_seconds_ = 0;
    for (int64_t i = 0; i < count; ++i) times.push_back(timed(once));
    std::nth_element(times.begin(), times.begin() + count / 2, times.end());
    const double of_cores = slowest(core_seconds_ / static_cast<double>(count));
    rates_.push_back({operation, world_.size(), bytes,
                      slowest(times[static_cast<size_t>(count / 2)]), of_cores});
  }

  double timed(const std::function<void()>& once) {
    group_->barrier("calibration");
    const auto began = std::chrono::steady_clock::now();
    const double had = profile::cpu_seconds();
    once();
    if (!device_.is_cpu()) {
      const c10::impl::VirtualGuardImpl guard(device_.type());
      guard.synchronizeStream(guard.getStream(device_));
    }
    core_seconds_ += profile::cpu_seconds() - had;  // the transport's threads have their part
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

  double slowest(double seconds) {
    const at::Tensor all =
        at::full({1}, seconds, at::TensorOptions().dtype(at::kDouble).device(device_));
    group_->all_reduce(all, "calibration", comm::Reduction::Max).wait();
    return all.item<double>();
  }

  comm::World& world_;
  c10::Device device_;
  std::shared_ptr<comm::Communicator> group_;
  double seconds_;
  double core_seconds_ = 0;
  std::vector<CollectiveRate> rates_;
};

}  // namespace

std::vector<CollectiveRate> measure_collectives(comm::World& world, c10::Device device,
                                                double seconds) {
  return CollectiveTimer(world, device, seconds).all();
}

}  // namespace moonshard::plan
