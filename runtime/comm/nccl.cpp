#include <cstdlib>

#include "runtime/base/plugin.h"
#include "runtime/comm/transports.h"

namespace moonshard::comm {
namespace {

using MakeNccl = c10d::Backend*(c10d::Store*, const char*, int, int, int, double);

MakeNccl* find_maker() {
  static const Plugin library("moonshard_torch_cuda");
  MS_CHECK(library.absence().empty(),
           "nccl: expected the library {} for several ranks on GPUs, got none: {}; build with the "
           "CUDA toolkit and NCCL's header, or use device = \"cpu\"",
           library.path(), library.absence());
  auto* maker = library.function<MakeNccl>("moonshard_make_nccl");
  MS_CHECK(maker != nullptr,
           "nccl: expected NCCL in {}, got none; build it again with the CUDA toolkit and NCCL's "
           "header",
           library.path());
  return maker;
}

}  // namespace

std::shared_ptr<Communicator> make_nccl(c10d::Store* store, const GroupOptions& options) {
  static MakeNccl* const make = find_maker();
  // NCCL's own watchdog would end the process with a core dump that does not name the missing rank,
  // before ours has reported.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 0);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);
  return wrap_backend(make(store, options.name.c_str(), options.rank, options.size,
                           options.device.index(), options.timeout_s + 3600),
                      "nccl", options);
}

}  // namespace moonshard::comm
