// A GPU, or a CPU, with round rates, for tests of predictions.
#pragma once

#include "runtime/plan/machine_profile.h"

namespace moonshard::plan {

inline MachineProfile machine_with_round_rates(const char* kind, double launch_us) {
  const Json rates{{"products", {{1024, 1024, 1024, 500}, {64, 64, 64, 5}}},
                   {"attention", {{1024, 64, 300, 200}}},
                   {"ghost_tflops", 500},
                   {"flash_tflops", 500},
                   {"sum_tflops", 500},
                   {"keep_tflops", 500}};
  return profile_from_json({{"name", "test"},
                            {"kind", kind},
                            {"memory_gb", 100},
                            {"context_mb", 0.001},
                            {"element_gb_per_s", 3000},
                            {"update_gb_per_s", 3000},
                            {"noise_g_per_s", 400},
                            {"launch_us", launch_us},
                            {"gap_us", launch_us},
                            {"to_device_gb_per_s", 50},
                            {"to_host_gb_per_s", 50},
                            {"host_update_gb_per_s", 100},
                            {"dtypes", {{"bfloat16", rates}, {"float32", rates}}}},
                           "test");
}

}  // namespace moonshard::plan
