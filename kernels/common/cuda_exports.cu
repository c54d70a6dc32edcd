// The one symbol that libmoonshard_cuda.so exports: the table of its functions.
#include "kernels/common/cuda_library.h"

extern "C" __attribute__((visibility("default"))) const moonshard::kernels::CudaFunctions*
moonshard_cuda_functions() {
  using namespace moonshard::kernels;
  static const CudaFunctions table = {sizeof(CudaFunctions),
#define MOONSHARD_ADDRESS(name) &name,
                                      MOONSHARD_CUDA_FUNCTIONS(MOONSHARD_ADDRESS)
#undef MOONSHARD_ADDRESS
  };
  return &table;
}
