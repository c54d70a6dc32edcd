#include "kernels/common/no_cuda.h"
#include "kernels/ghost_norm/ghost_norm_launch.h"

namespace moonshard::kernels {

int64_t ghost_norm_sm90_workspace_bytes(const std::vector<GhostGroupView>&, int64_t) {
  fail_without_cuda("ghost_norm");
}

void launch_ghost_norm_sm90(const std::vector<GhostGroupView>&, int64_t, double*, double*, void*,
                            void*) {
  fail_without_cuda("ghost_norm");
}

int64_t ghost_norm_mma_workspace_bytes(const std::vector<GhostGroupView>&, int64_t) {
  fail_without_cuda("ghost_norm");
}

void launch_ghost_norm_mma(const std::vector<GhostGroupView>&, int64_t, double*, double*, void*,
                           void*) {
  fail_without_cuda("ghost_norm");
}

void launch_ghost_norm_reduce(const std::vector<GhostPartials>&, int64_t, double*, double*, void*) {
  fail_without_cuda("ghost_norm");
}

}  // namespace moonshard::kernels
