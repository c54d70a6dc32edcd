// The part of secure_noise that needs no ATen.
#pragma once

#include <cstdint>

#include "kernels/common/chacha.h"

namespace moonshard::kernels {

/// Names one stream of normals under a secret key. A key is used by one trainer between two
/// resumes, which never uses a (step, parameter) twice.
struct SecureStream {
  ChaChaKey key;           ///< from the operating system's generator; never written anywhere
  uint32_t step = 0;       ///< optimizer step
  uint32_t parameter = 0;  ///< index of the parameter, with a purpose as in NoiseStream
};

// Raw launcher (secure_noise.cu).
void launch_secure_noise(void* data, bool is_double, int64_t count, double std,
                         const SecureStream& stream, int64_t first_element, void* cuda_stream);

}  // namespace moonshard::kernels
