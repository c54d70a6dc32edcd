// What operations cost on a machine: rates that were measured (calibration.h) or taken from data
// sheets, in a small JSON file. Predictions of time come from these numbers alone. Torch-free.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/tracing/stand_ins.h"

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
  bool causal = false;  ///< as decoders have it; image models, and 32-bit dtypes, are timed without
};

/// Of one compute dtype.
struct DtypeRates {
  std::vector<ProductRate> products;
  std::vector<AttentionRate> attention;
  /// The engines' kernels on TimedEngines, in units of norm_cost.h: operations per second.
  double ghost = 0, flash = 0, sum = 0, keep = 0;
};

/// What a calibration times engines on: layers that read one input.
struct TimedEngines {
  static constexpr int64_t kSamples = 2, kPositions = 2048, kWidth = 4096, kLayers = 3;
};

/// A collective between ranks of one machine that were measured (collective_calibration.h).
struct CollectiveRate {
  std::string operation;
  int64_t ranks = 1;
  double bytes = 0;    ///< of the whole buffer
  double seconds = 0;  ///< alone
  /// Of a processor's core, by a rank's threads: what its computation lacks where no core is free.
  double core_seconds = 0;
};

/// What a GPU's step shows beside the rates of operations that are timed one by one: those keep the
/// device at its power limit, or at its highest clock, for longer than a step does. Factors of
/// rates, and costs of kernels that no calibration times. These are of steps on an H200; a
/// profile's `in_step` may have others. See docs/plan.md for where they come from.
struct InStep {
  double products = 1.06, attention_forward = 1.13, attention_backward = 0.95;
  double launch = 0.87;                                  ///< time of the host's launches
  double sums = tracing::kProductOfSum, update = 0.948;  ///< the engines' kernels; the update
  double rows_read = 1;    ///< compact rows, in the update: of its bytes per second
  double tensor_us = 2.3;  ///< of the update, for every parameter
  double row_us = 0.3;     ///< and for every sample's row of a unit's small parameters
  double chain = 1.43;     ///< bytes of operations one after the other, over their own
  double masked_forward = 0.4, masked_backward = 0.35;  ///< attention that reads a mask: of rates
  double windowed = 0.55;                               ///< attention over a window, by its kernel
  double outer_sum = 0.2;  ///< sums of one position: of float32's fastest product
  // What the host launches, in layers (launch_us).
  double backward = 2.05;  ///< of a layer, over its forward; without privacy `plain_backward`
  double plain_backward = 2.2;
  double bare_backward = 1.85;   ///< of blocks whose norms have no weights (DiT)
  double cast = 0.68;            ///< of a weight, at each use
  double adapter = 0.3;          ///< one of LoRA's two layers
  double capped = 4;             ///< scores that are a tensor and capped
  double masked = 3;             ///< attention with a mask, by a kernel
  double plain_gradients = 3.5;  ///< a layer's gradients of every sample, which no kernel joins
  double more_norms = 2.5;       ///< the engine's part of a norm, where a block has more than two
  double gather = 2;             ///< a unit, from other ranks
  double reduce = 2.6, reduced_tensor = 0.15;  ///< its gradients, and each of them
  double data = 10, graph_data_us = 600;       ///< the batch; before a graph in time of its own
  double clip_factors = 4, reduced = 16;  ///< of a step; where ranks wait for each other's sums
  double first_steps = 1.15;              ///< that decide whether there is a graph
  double beside = 0.3;  ///< of a collective's time, that private computation beside it lacks
  double wide_rows_read = 1.06;  ///< float32 rows, in the update: of its bytes per second
  double rows_beside_sum =
      0.5;  ///< rows beside a sum, which a general kernel reads: of their speed

  /// Of a CPU, whose rates are those of a step.
  static InStep none() {
    InStep step{1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1};
    step.capped = step.masked = step.plain_gradients = 0;
    step.gather = step.reduced_tensor = step.more_norms = 0;
    step.data = step.graph_data_us = step.clip_factors = step.reduced = 0;
    step.reduce = 2;
    step.backward = step.plain_backward = 1.8;
    step.cast = 0;
    step.adapter = 0.35;
    step.first_steps = step.wide_rows_read = step.rows_beside_sum = 1;
    step.beside = 0;
    return step;
  }
};

/// How far measured points were from predictions: nine of ten were between `low` and `high` times
/// what was predicted.
struct Spread {
  double low = 0, high = 0, points = 0;
};

/// What comparisons of a profile's predictions with measured steps have found; empty where there
/// were none.
struct Checked {
  struct OfTime : Spread {
    double host_share;  ///< of steps of which the host's launches take at most so much
  };
  std::vector<OfTime> time;  ///< by rising share
  Spread memory;

  /// Of the steps with the nearest larger share; nothing known: zeros.
  Spread time_of(double host_share) const;
};

struct MachineProfile {
  std::string name;    ///< "h200"
  std::string device;  ///< "NVIDIA H200"
  std::string source;  ///< where the numbers come from, for people
  bool is_measured = false;
  bool is_gpu = false;
  std::string link = "nvlink";  ///< inside of a node, of links.h, where nobody names one
  bool fixed_segments = false;  ///< of its allocator: they do not grow (core/allocators.h)
  double memory_bytes = 0;      ///< of the device
  double context_bytes = 0;     ///< of the allocator's, that no tensor of a step owns
  double element_per_s = 0;     ///< bytes per second of element-wise kernels
  double update_per_s = 0;      ///< bytes per second of the optimizer's pass
  double noise_per_s = 0;  ///< normal numbers per second in that pass, of which a quarter shows
  double launch_us = 0;    ///< of the host for one layer's operations
  double gap_us = 0;       ///< of the device between two kernels
  double to_device_per_s = 0, to_host_per_s = 0;  ///< bytes per second of copies beside kernels
  double host_update_per_s = 0;                   ///< bytes per second of the host's optimizer
  // Of a CPU; 0 where nothing is known.
  double cores = 0, threads = 0;  ///< of the machine; of one rank while it was measured
  double fresh_per_s = 0;         ///< bytes per second of memory that the system gives anew
  std::map<std::string, DtypeRates> dtypes;  ///< "bfloat16", "float32"
  std::vector<CollectiveRate> collectives;   ///< where ranks were here; else links decide
  InStep in_step = InStep::none();
  Checked checked;

  const DtypeRates& rates(const std::string& dtype) const;
};

struct CollectiveSeconds {
  double alone = -1;  ///< below 0: was not measured
  double of_cores = 0;
};
/// Of a collective between so many ranks, between those of the nearest sizes.
CollectiveSeconds collective_seconds(const MachineProfile& machine, const char* operation,
                                     int64_t ranks, double bytes);

/// Of the time that a CPU's cores need for collectives: what its ranks' computation lacks, as no
/// core is free.
double without_core(const MachineProfile& machine, int64_t ranks);

/// Until the system has given (and cleared) a CPU's buffer. A GPU's allocator keeps its own: 0.
double fresh_seconds(const MachineProfile& machine, double bytes);

/// Throws IoError or UsageError where the object is not a profile.
MachineProfile profile_from_json(const Json& object, const std::string& where);
Json to_json(const MachineProfile& profile);
Json to_json(const CollectiveRate& rate);

/// Of an H200's own calibration, whose file has none: the program learns more. Of any other device
/// nothing is known.
Checked checked_of_calibrated(const std::string& device);

/// Where this user's calibration lies: beside the tuning file (core/tuning.h), named by device, and
/// by ranks where those share it, as they do a CPU. Empty where there is no such place.
std::filesystem::path calibration_file(const std::string& device, int64_t ranks = 1);

/// Seconds of [m, k] x [k, n]: rates of the nearest measured products, by the logarithms of their
/// sizes.
double product_seconds(const DtypeRates& rates, double m, double n, double k);
/// Operations per second of such a product, over those of the fastest that was measured.
double product_share(const DtypeRates& rates, double m, double n, double k);
/// Operations per second of attention at so many positions, forward and backward.
AttentionRate attention_rate(const DtypeRates& rates, double positions, double head_dim,
                             bool causal);

}  // namespace moonshard::plan
