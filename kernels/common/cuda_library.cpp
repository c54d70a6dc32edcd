#include "kernels/common/cuda_library.h"

#include "runtime/base/plugin.h"

namespace moonshard::kernels {
namespace {

struct LoadedCuda {
  const CudaFunctions* functions = nullptr;
  std::string absence;
};

LoadedCuda load_cuda_library() {
  LoadedCuda loaded;
  static const Plugin library("moonshard_cuda");
  loaded.absence = library.absence();
  if (!loaded.absence.empty()) {
    loaded.absence += "; build it with nvcc (cmake --build build --target moonshard_cuda)";
    return loaded;
  }
  const auto table = library.function<const CudaFunctions*()>("moonshard_cuda_functions");
  loaded.functions = table != nullptr ? table() : nullptr;
  if (loaded.functions == nullptr || loaded.functions->table_bytes != sizeof(CudaFunctions)) {
    loaded.functions = nullptr;
    loaded.absence = library.path() + " is of another version; build it again";
  }
  return loaded;
}

const LoadedCuda& loaded_cuda() {
  static const LoadedCuda loaded = load_cuda_library();
  return loaded;
}

}  // namespace

const CudaFunctions& cuda() {
  const LoadedCuda& loaded = loaded_cuda();
  if (loaded.functions == nullptr) {
    throw std::runtime_error("kernels: expected the library of CUDA kernels, got none: " +
                             loaded.absence + ", or use device = \"cpu\"");
  }
  return *loaded.functions;
}

const std::string& cuda_library_absence() {
  return loaded_cuda().absence;
}

}  // namespace moonshard::kernels
