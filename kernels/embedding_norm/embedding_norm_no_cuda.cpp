#include "kernels/common/no_cuda.h"
#include "kernels/embedding_norm/embedding_norm_launch.h"

namespace moonshard::kernels {

int64_t embedding_norm_workspace_bytes(const EmbeddingRows&) {
  fail_without_cuda("embedding_norm");
}

void launch_embedding_norm(const int64_t*, const int64_t*, const EmbeddingRows&, int64_t, double*,
                           void*, void*) {
  fail_without_cuda("embedding_norm");
}

void launch_embedding_sum(const int64_t*, const int64_t*, const EmbeddingRows&, const double*,
                          int64_t, float*, int64_t, void*) {
  fail_without_cuda("embedding_sum");
}

}  // namespace moonshard::kernels
