#include "runtime/profile/kernel_timer.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "kernels/delay/delay.h"
#include "runtime/profile/nvml.h"

namespace moonshard::profile {

double best_ms(c10::Device device, int repeats, const std::function<void()>& once) {
  constexpr int kWarmUps = 3, kRounds = 3;
  constexpr double kLaunchUs = 3000;
  for (int i = 0; i < kWarmUps; ++i) once();
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    double ms = 0;
    if (device.is_cuda()) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      c10::Event start(device.type(), c10::EventFlag::BACKEND_DEFAULT),
          stop(device.type(), c10::EventFlag::BACKEND_DEFAULT);
      const c10::Stream stream = guard.getStream(device);
      // Launches wait in the queue behind this: small kernels are timed, not the host.
      if (kernels::can_delay()) kernels::delay_stream(kLaunchUs, stream.native_handle());
      start.record(stream);
      for (int i = 0; i < repeats; ++i) once();
      stop.record(stream);
      stop.synchronize();
      ms = start.elapsedTime(stop);
    } else {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < repeats; ++i) once();
      ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
               .count();
    }
    best = round == 0 ? ms / repeats : std::min(best, ms / repeats);
  }
  return best;
}

std::string machine_of(c10::Device device) {
  if (!device.is_cuda()) return fmt::format("CPU, LibTorch {}", TORCH_VERSION);
  static const std::vector<Gpu> gpus =
      visible_gpus(list_gpus().gpus, std::getenv("CUDA_VISIBLE_DEVICES"));
  const auto index = static_cast<size_t>(std::max<int>(0, device.index()));
  return fmt::format("{}, LibTorch {}", index < gpus.size() ? gpus[index].name : "GPU",
                     TORCH_VERSION);
}

}  // namespace moonshard::profile
