// What launchers do where there is no nvcc or no CUDA in LibTorch (each op's <op>_no_cuda.cpp).
#pragma once

#include <stdexcept>
#include <string>

namespace moonshard::kernels {

[[noreturn]] inline void fail_without_cuda(const char* operation) {
  throw std::runtime_error(std::string(operation) +
                           ": expected a build with CUDA kernels, got one without; install nvcc "
                           "and configure again with -DMOONSHARD_CUDA=ON, or use device = \"cpu\"");
}

}  // namespace moonshard::kernels
