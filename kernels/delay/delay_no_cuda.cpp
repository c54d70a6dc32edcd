#include "kernels/common/no_cuda.h"
#include "kernels/delay/delay.h"

namespace moonshard::kernels {

void launch_delay(double, void*) {
  fail_without_cuda("delay");
}

}  // namespace moonshard::kernels
