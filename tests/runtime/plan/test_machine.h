// A GPU, or a CPU, with round rates, and predictions of steps on it, for tests.
#pragma once

#include "runtime/base/json.h"
#include "runtime/plan/machine_profile.h"
#include "runtime/plan/plan_request.h"
#include "runtime/plan/prediction.h"
#include "runtime/plan/shared_costs.h"

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

inline Cluster one_gpu(double launch_us = 0.01) {
  Cluster cluster;
  cluster.machine = machine_with_round_rates("cuda", 0.01);
  cluster.machine.launch_us = launch_us;
  return cluster;
}

inline Cluster one_cpu() {
  Cluster cluster;
  cluster.machine = machine_with_round_rates("cpu", 0.01);
  return cluster;
}

/// The H200 of the profile that ships.
inline Cluster one_h200() {
  Cluster cluster;
  cluster.machine = profile_from_json(
      read_json_file(MOONSHARD_SOURCE_DIR "/scripts/moonshard/machines/h200.json"), "h200");
  return cluster;
}

inline Json step_of(const char* model, const char* mode, const Json& more = Json::object()) {
  Json options{
      {"model", model},     {"mode", mode},       {"batch_size", 2}, {"seq_length", 1024},
      {"parallel", "fsdp"}, {"dtype", "float32"}, {"compile", "no"}, {"param_dtype", "bfloat16"}};
  options.update(more);
  return options;
}

inline Prediction step_predicted(const Json& options, const Cluster& cluster,
                                 SharedCosts* shared = nullptr) {
  const experiment::ExperimentOptions resolved = resolve_for(options, cluster);
  return predict(PlannedModel(resolved, resolved.seq_length, cluster.machine), resolved, cluster,
                 nullptr, shared);
}

}  // namespace moonshard::plan
