// From counter to four normals: the arithmetic that the reference, the CPU path and the kernels
// share.
#pragma once

#include "kernels/common/normal_math.h"
#include "kernels/common/philox.h"

namespace moonshard::kernels {

struct FourNormals {
  float value[4];
};

/// Normals 4*block … 4*block+3 of stream (step, parameter) under the key.
MS_HOST_DEVICE FourNormals four_normals(uint64_t block, uint32_t step, uint32_t parameter,
                                        uint64_t key) {
  const PhiloxWords words = philox4x32_10(
      {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), step, parameter}},
      static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  const float radius_0 = radius_of_word(words.word[0]);
  const float radius_1 = radius_of_word(words.word[2]);
  const SineCosine angle_0 = turn(uniform_open(words.word[1]));
  const SineCosine angle_1 = turn(uniform_open(words.word[3]));
  return {{radius_0 * angle_0.cosine, radius_0 * angle_0.sine, radius_1 * angle_1.cosine,
           radius_1 * angle_1.sine}};
}

}  // namespace moonshard::kernels
