#include "kernels/clipped_sum/clipped_sum_launch.h"
#include "kernels/common/no_cuda.h"

namespace moonshard::kernels {

ClippedSumPlan plan_clipped_sum(const ClippedSumProblem*, int, ClippedSumPlan) {
  fail_without_cuda("clipped_sum");
}

void launch_clipped_sum(const ClippedSumProblem*, int, const float*, bool, const ClippedSumPlan&,
                        float*, void*) {
  fail_without_cuda("clipped_sum");
}

}  // namespace moonshard::kernels
