#include "kernels/embedding_norm/embedding_norm.h"

#include <ATen/ATen.h>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"
#include "kernels/embedding_norm/embedding_norm_launch.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

void check_inputs(const char* operation, const at::Tensor& ids, const at::Tensor& g) {
  MS_CHECK(ids.dim() == 2 && ids.scalar_type() == at::kLong && g.dim() == 3 &&
               g.size(0) == ids.size(0) && g.size(1) == ids.size(1) && g.device() == ids.device(),
           "{}: expected ids [B, T] of type Long and g [B, T, d] on one device, got ids {} of type "
           "{} and g {}",
           operation, c10::str(ids.sizes()), c10::toString(ids.scalar_type()), c10::str(g.sizes()));
}

bool format_fits(const char* operation, const at::Tensor& g) {
  const bool counts = g.size(0) * g.size(1) < (int64_t{1} << 31);  // positions, in 32 bits
  if ((g.scalar_type() == at::kBFloat16 || g.scalar_type() == at::kFloat) &&
      (g.stride(2) == 1 || g.size(2) == 1) && counts)
    return true;
  note_fallback(operation, std::string("g of type ") + c10::toString(g.scalar_type()) +
                               " and last stride " + std::to_string(g.stride(2)) +
                               "; expected BFloat16 or Float and stride 1");
  return false;
}

EmbeddingRows rows_of(const at::Tensor& g) {
  return {
      g.data_ptr(), g.scalar_type() == at::kBFloat16, g.size(0), g.size(1), g.size(2), g.stride(1),
      g.stride(0)};
}

}  // namespace

at::Tensor embedding_norm(const at::Tensor& ids, const at::Tensor& g, int64_t padding_id) {
  check_inputs("embedding_norm", ids, g);
  if (g.numel() == 0 || !kernel_runs("embedding_norm", g) || !format_fits("embedding_norm", g))
    return embedding_norm_ref(ids, g, padding_id);
  // Stable: the order of the sums is the order of the positions.
  auto [sorted, order] = ids.sort(/*stable=*/true, /*dim=*/1, /*descending=*/false);
  sorted = sorted.contiguous();
  order = order.contiguous();
  const EmbeddingRows rows = rows_of(g);
  at::Tensor squares = at::empty({g.size(0)}, g.options().dtype(at::kDouble));
  const at::Tensor workspace =
      at::empty({cuda().embedding_norm_workspace_bytes(rows)}, g.options().dtype(at::kByte));
  cuda().launch_embedding_norm(sorted.data_ptr<int64_t>(), order.data_ptr<int64_t>(), rows,
                               padding_id, squares.data_ptr<double>(), workspace.data_ptr(),
                               stream_of(g));
  return squares;
}

void embedding_sum(at::Tensor& out, const at::Tensor& ids, const at::Tensor& g,
                   const at::Tensor& factors, int64_t padding_id) {
  check_inputs("embedding_sum", ids, g);
  MS_CHECK(out.dim() == 2 && out.size(1) == g.size(2) && out.device() == g.device(),
           "embedding_sum: expected out [V, {}] on {}, got {} on {}", g.size(2), g.device().str(),
           c10::str(out.sizes()), out.device().str());
  MS_CHECK(!factors.defined() || (factors.dim() == 1 && factors.size(0) == g.size(0)),
           "embedding_sum: expected one factor for each of {} samples, got {}", g.size(0),
           factors.defined() ? c10::str(factors.sizes()) : "none");
  const bool plain_out =
      out.scalar_type() == at::kFloat && (out.stride(1) == 1 || out.size(1) == 1);
  if (g.numel() == 0 || !plain_out || !kernel_runs("embedding_sum", g) ||
      !format_fits("embedding_sum", g))
    return embedding_sum_ref(out, ids, g, factors, padding_id);
  const auto [sorted, order] = ids.flatten().sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor weights =
      factors.defined() ? factors.to(g.device(), at::kDouble).contiguous() : at::Tensor();
  cuda().launch_embedding_sum(sorted.data_ptr<int64_t>(), order.data_ptr<int64_t>(), rows_of(g),
                              weights.defined() ? weights.data_ptr<double>() : nullptr, padding_id,
                              out.data_ptr<float>(), out.stride(0), stream_of(g));
}

}  // namespace moonshard::kernels
