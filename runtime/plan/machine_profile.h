// What operations cost on a machine: rates that were measured (calibration.h) or taken from data
// sheets, in a small JSON file. Predictions of time come from these numbers alone. Torch-free.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/json.h"

namespace moonshard::plan {

/// A matrix product [m, k] x [k, n] and the operations per second that it reached (2 m n k per
/// product).
struct ProductRate {
  double m = 0, n = 0, k = 0, per_s = 0;
};

/// Operations of attention's backward pass, over those of forward.
inline constexpr double kAttentionBackward = 2.5;

/// Attention of T positions: operations per second (4 T^2 d per head, half of it if causal) forward
/// and backward.
struct AttentionRate {
  double positions = 0, head_dim = 0, forward_per_s = 0, backward_per_s = 0;
};

/// Of one compute dtype.
struct DtypeRates {
  std::vector<ProductRate> products;
  std::vector<AttentionRate> attention;
  /// The engines' kernels on large layers, in units of norm_cost.h: operations per second.
  double ghost = 0, flash = 0, sum = 0, keep = 0;
};

/// A collective between ranks of one machine that were measured (collective_calibration.h).
struct CollectiveRate {
  std::string operation;
  int64_t ranks = 1;
  double bytes = 0;    ///< of the whole buffer
  double seconds = 0;  ///< alone
};

struct MachineProfile {
  std::string name;    ///< "h200"
  std::string device;  ///< "NVIDIA H200"
  std::string source;  ///< where the numbers come from, for people
  bool is_measured = false;
  bool is_gpu = false;
  double memory_bytes = 0;   ///< of the device
  double context_bytes = 0;  ///< of the allocator's, that no tensor of a step owns
  double element_per_s = 0;  ///< bytes per second of element-wise kernels
  double update_per_s = 0;   ///< bytes per second of the optimizer's pass
  double noise_per_s = 0;    ///< normal numbers per second in that pass
  double launch_us = 0;      ///< of the host for one layer's operations
  double gap_us = 0;         ///< of the device between two kernels
  double to_device_per_s = 0, to_host_per_s = 0;  ///< bytes per second of copies beside kernels
  double host_update_per_s = 0;                   ///< bytes per second of the host's optimizer
  std::map<std::string, DtypeRates> dtypes;       ///< "bfloat16", "float32"
  std::vector<CollectiveRate> collectives;        ///< where ranks were here; else links decide

  const DtypeRates& rates(const std::string& dtype) const;
};

/// Seconds of a collective between so many ranks, between those of the nearest sizes; below 0: was
/// not measured.
double collective_seconds(const MachineProfile& machine, const char* operation, int64_t ranks,
                          double bytes);

/// Throws IoError or UsageError where the object is not a profile.
MachineProfile profile_from_json(const Json& object, const std::string& where);
Json to_json(const MachineProfile& profile);

/// Where this user's calibration lies: beside the tuning file (core/tuning.h), named by device.
/// Empty where there is no such place.
std::filesystem::path calibration_file(const std::string& device);

/// Seconds of [m, k] x [k, n]: rates of the nearest measured products, by the logarithms of their
/// sizes.
double product_seconds(const DtypeRates& rates, double m, double n, double k);
/// Operations per second of such a product, over those of the fastest that was measured.
double product_share(const DtypeRates& rates, double m, double n, double k);
/// Operations per second of attention at so many positions, forward and backward.
AttentionRate attention_rate(const DtypeRates& rates, double positions, double head_dim);

}  // namespace moonshard::plan
