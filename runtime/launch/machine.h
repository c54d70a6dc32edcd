// What machine and which program made a result: goes into env.json and the doctor's report.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/json.h"

namespace moonshard::launch {

/// {"moonshard", "commit", "libtorch", "compiler", "os", "cpu", "cores", "memory_bytes", "gpus",
/// …}. Cheap and without touching a GPU: names of GPUs come from the driver's own files.
Json describe_machine();

std::vector<std::string> gpu_names();
std::string version();  ///< of moonshard
std::string libtorch_version();

}  // namespace moonshard::launch
