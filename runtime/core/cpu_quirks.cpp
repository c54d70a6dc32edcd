#include "runtime/core/cpu_quirks.h"

#if defined(__aarch64__)

#include <sys/auxv.h>

#include <cstdlib>

namespace {

// LibTorch's BLAS on aarch64 (NVPL) selects kernels by the CPU's name. Under a hypervisor that
// hides SVE from a CPU that has it by name (a Neoverse V1 guest, for one), its first matrix product
// loops for ever. Type 1 selects the kernels without SVE. The library reads the variable at its
// first call, so a static constructor is early enough; a value set by the user is kept.
__attribute__((constructor)) void choose_blas_kernels() {
  constexpr unsigned long kHasSve = 1ul << 22;  // HWCAP_SVE
  if ((getauxval(AT_HWCAP) & kHasSve) == 0) setenv("NVPL_BLAS_DEBUG_CPU_TYPE", "1", 0);
}

}  // namespace

#endif

namespace moonshard {

void prepare_cpu_libraries() {}

}  // namespace moonshard
