// The CUDA kernels are a separate shared library, lib/libmoonshard_cuda.so, loaded when a tensor on
// a GPU first needs one: a machine without a GPU needs neither nvcc nor the library, and one
// program serves both. The library exports a single function that returns a table of launchers; the
// list below is the whole interface between the two sides. A launcher that is added to a
// header of launchers gets its line here.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/clipped_sum/clipped_sum_launch.h"
#include "kernels/coin_rounding/coin_rounding_launch.h"
#include "kernels/common/architecture.h"
#include "kernels/common/elementwise_launch.h"
#include "kernels/counter_noise/counter_noise_launch.h"
#include "kernels/cross_entropy/cross_entropy_launch.h"
#include "kernels/embedding_norm/embedding_norm_launch.h"
#include "kernels/flash_norm/flash_norm_launch.h"
#include "kernels/fused_update/fused_update_launch.h"
#include "kernels/ghost_norm/ghost_norm_launch.h"
#include "kernels/layer_norm/layer_norm_launch.h"
#include "kernels/nucleus/nucleus_launch.h"
#include "kernels/position_lengths/position_lengths_launch.h"
#include "kernels/rms_norm/rms_norm_launch.h"
#include "kernels/sample_dropout/sample_dropout_launch.h"
#include "kernels/secure_noise/secure_noise_launch.h"

#define MOONSHARD_CUDA_FUNCTIONS(X)  \
  X(device_architecture)             \
  X(device_memory_bytes)             \
  X(plan_clipped_sum)                \
  X(launch_clipped_sum)              \
  X(launch_coin_rounding)            \
  X(launch_counter_noise)            \
  X(launch_cross_entropy_forward)    \
  X(launch_cross_entropy_backward)   \
  X(launch_delay)                    \
  X(launch_transfer)                 \
  X(launch_repeat)                   \
  X(embedding_norm_workspace_bytes)  \
  X(launch_embedding_norm)           \
  X(launch_embedding_sum)            \
  X(flash_norm_scratch)              \
  X(launch_flash_norm)               \
  X(flash_norm_mma_scratch)          \
  X(launch_flash_norm_mma)           \
  X(launch_fused_update)             \
  X(launch_gelu_forward)             \
  X(launch_gelu_backward)            \
  X(ghost_norm_sm90_workspace_bytes) \
  X(launch_ghost_norm_sm90)          \
  X(ghost_norm_mma_workspace_bytes)  \
  X(launch_ghost_norm_mma)           \
  X(launch_ghost_norm_reduce)        \
  X(launch_layer_norm_forward)       \
  X(launch_layer_norm_backward)      \
  X(launch_nucleus_border)           \
  X(launch_outer_sum)                \
  X(launch_position_lengths)         \
  X(launch_bounded_squares)          \
  X(launch_rms_norm_forward)         \
  X(launch_rms_norm_backward)        \
  X(launch_rotary)                   \
  X(launch_sample_dropout)           \
  X(launch_secure_noise)             \
  X(launch_gated_forward)            \
  X(launch_gated_backward)

namespace moonshard::kernels {

struct CudaFunctions {
  size_t table_bytes;  ///< sizeof this struct when the library was built
#define MOONSHARD_MEMBER(name) decltype(&kernels::name) name;
  MOONSHARD_CUDA_FUNCTIONS(MOONSHARD_MEMBER)
#undef MOONSHARD_MEMBER
};

/// The library's functions, loaded on the first call. Throws std::runtime_error with the reason
/// when it cannot be loaded.
const CudaFunctions& cuda();

/// Why the kernels cannot be used; empty when they can. Loads the library.
const std::string& cuda_library_absence();

}  // namespace moonshard::kernels
