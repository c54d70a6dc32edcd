// The one symbol that libmoonshard_cuda.so exports: the table of its functions.
#include "kernels/common/cuda_library.h"

#ifndef MOONSHARD_COMMIT
#define MOONSHARD_COMMIT "unknown"
#endif

extern "C" __attribute__((visibility("default"))) const moonshard::kernels::CudaFunctions*
moonshard_cuda_functions() {
  using namespace moonshard::kernels;
  static const CudaFunctions table = {sizeof(CudaFunctions), MOONSHARD_COMMIT,
#define MOONSHARD_ADDRESS(name) &name,
                                      MOONSHARD_CUDA_FUNCTIONS(MOONSHARD_ADDRESS)
#undef MOONSHARD_ADDRESS
  };
  return &table;
}
