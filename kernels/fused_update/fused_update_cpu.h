// The update of parts in host memory: one pass in tiles of 512 elements that stay in the cache, on
// all threads. Against the reference, of which it is the arithmetic, element by element: gradient,
// noise and division are the same numbers to the last bit (without rows); values and moments are
// within 2e-6 of their terms' sizes (a product and its sum may be rounded once or twice), and one
// rounding where they are bfloat16 (the reference rounds Adam's gradient to bfloat16, too). An
// element's result does not depend on where its part begins, nor on the number of threads.
#pragma once

#include <vector>

#include "kernels/fused_update/fused_update.h"

namespace moonshard::kernels {

/// Parts that the kernel does not take (float16 values, gradients or moments in an unusual format,
/// tensors with holes, other devices) are updated by fused_update_ref. Leaves `grad` as it is, or
/// with rows their sum.
void fused_update_cpu(std::vector<UpdatePart>& parts, const UpdateRule& rule,
                      const UpdateNoise& noise);

}  // namespace moonshard::kernels
