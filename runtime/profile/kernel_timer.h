// Times work on a device by itself, for choices that are made by measuring (core/tuning.h).
#pragma once

#include <functional>
#include <string>

#include <c10/core/Device.h>

namespace moonshard::profile {

/// Milliseconds of one call: the shortest round's mean, after warm-ups. On the device's current
/// stream, which it waits for.
double best_ms(c10::Device device, int repeats, const std::function<void()>& once);

/// The GPU and the library that a time belongs to: "NVIDIA H200, LibTorch 2.11.0".
std::string machine_of(c10::Device device);

}  // namespace moonshard::profile
