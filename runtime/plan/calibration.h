// A minute of micro-benchmarks on this machine's device, for predictions of time: single matrix
// products, attention, element-wise traffic, the optimizer's pass, the engines' kernels, copies,
// and what the host needs to launch a layer. No training configuration is measured.
#pragma once

#include <functional>
#include <string>

#include "runtime/plan/machine_profile.h"

namespace moonshard::plan {

/// Told what is measured next.
using CalibrationProgress = std::function<void(const std::string& what)>;

/// `device` as an option: "auto", "cpu", "cuda". `seconds`: about how long it may take.
MachineProfile calibrate(const std::string& device, double seconds,
                         const CalibrationProgress& progress);

/// The device's name as profiles have it: "NVIDIA H200", or of the CPU.
std::string device_name(const std::string& device);

}  // namespace moonshard::plan
