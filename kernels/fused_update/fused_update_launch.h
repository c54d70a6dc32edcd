// The part of fused_update that needs no ATen: a launch's arguments, and the raw launcher.
#pragma once

#include <cstdint>

#include "kernels/common/chacha.h"
#include "kernels/common/gradient_units.h"
#include "kernels/counter_noise/counter_noise_launch.h"

namespace moonshard::kernels {

/// Split: float32 values in two halves (kernels/split_float/split_float.h).
enum class UpdateFormat : int8_t {
  None = -1,
  Float = 0,
  Double = 1,
  Bfloat16 = 2,
  Half = 3,
  Split = 4
};

enum class UpdateKind : int8_t {
  Replace,   ///< the value becomes the gradient: rows are summed up, nothing is trained
  Sgd,       ///< value -= lr g
  Momentum,  ///< sum = momentum sum + g, value -= lr sum
  Adam,      ///< weight decay is added to the gradient
  AdamW      ///< weight decay shrinks the value
};

/// One part of a parameter, by addresses on the device. All parts of a call have the same value
/// format; moments are in it (Split: in float), but the sum of Momentum, which is float (double for
/// double).
struct RawUpdatePart {
  void* value = nullptr;
  void* low = nullptr;                 ///< Split: the low halves; `value` has the high ones
  const void* grad = nullptr;          ///< [count], or null
  const void* rows = nullptr;          ///< [num_rows][row_stride], or null
  const float* row_factors = nullptr;  ///< [num_rows, units_per_row], factor_stride apart
  void* first_moment = nullptr;        ///< Momentum: the sum; Adam: the mean
  void* second_moment = nullptr;       ///< Adam: the mean square
  int64_t count = 0, row_stride = 0;
  uint32_t units_per_row = 1;  ///< of kUnitElements, of the whole parameter; 1: one factor
  uint32_t factor_stride = 1;  ///< from row to row; the last factor's place is below 2^32
  int64_t first_element = 0;   ///< of the part in its parameter
  uint32_t parameter = 0;      ///< names the noise stream
  int32_t num_rows = 0;
  UpdateFormat grad_format = UpdateFormat::None, row_format = UpdateFormat::None;
  double correction1 = 1, correction2 = 1;  ///< Adam: 1 - beta^steps, this update counted
};

struct RawUpdateRule {
  UpdateKind kind = UpdateKind::Sgd;
  UpdateFormat value_format = UpdateFormat::Float;
  double lr = 0, momentum = 0, beta1 = 0, beta2 = 0, eps = 0, decay = 0;
  double noise_std = 0, denominator = 1;
  uint64_t noise_key = 0;  ///< of reproducible noise
  uint32_t noise_step = 0;
  bool is_secret = false;  ///< noise under secret_key, on its grid
  ChaChaKey secret_key;
};

/// The table of parts is passed as kernel parameters, this many parts at a time: no copy, no launch
/// per part.
inline constexpr int kPartsPerLaunch = 32;

void launch_fused_update(const RawUpdatePart* parts, int num_parts, const RawUpdateRule& rule,
                         void* cuda_stream);
/// Its part with noise under a secret key (fused_update_secret.cu).
void launch_fused_update_secret(const RawUpdatePart* parts, int num_parts,
                                const RawUpdateRule& rule, void* cuda_stream);

}  // namespace moonshard::kernels
