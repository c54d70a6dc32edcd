#include "runtime/core/version.h"

#include <torch/version.h>

#include "moonshard_build.h"

namespace moonshard {

std::string library_version() {
  return MOONSHARD_VERSION " (commit " + source_commit() + "), LibTorch " TORCH_VERSION;
}

}  // namespace moonshard
