// The part of counter_noise that needs no ATen: the stream's name and the raw launcher.
#pragma once

#include <cstdint>

namespace moonshard::kernels {

/// Names one stream of normals. Training noise uses (run key, step, parameter); initial weights use
/// the same generator with another purpose.
struct NoiseStream {
  uint64_t key = 0;        ///< of the run: from the seed, or from the OS
  uint32_t step = 0;       ///< optimizer step, or 0 for initial weights
  uint32_t parameter = 0;  ///< index of the parameter; its two highest bits are the purpose
};

inline constexpr uint32_t kPurposeClipCount = 0x40000000u;
inline constexpr uint32_t kPurposeInitialWeights = 0x80000000u;
inline constexpr uint32_t kPurposeData = 0xC0000000u;

// Raw launcher (counter_noise.cu). format: 0 float, 1 double, 2 bfloat16, 3 half.
void launch_counter_noise(void* data, int format, int64_t count, double std,
                          const NoiseStream& stream, int64_t first_element, void* cuda_stream);

}  // namespace moonshard::kernels
