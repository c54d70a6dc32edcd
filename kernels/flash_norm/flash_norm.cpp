#include "kernels/flash_norm/flash_norm.h"

#include <ATen/ATen.h>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

void check_kept(const SampleProblem& problem, const at::Tensor& kept, const at::Tensor& scale) {
  const int64_t B = problem.a.size(0), o = problem.g.size(2), i = problem.a.size(2);
  MS_CHECK(kept.sizes() == at::IntArrayRef({B, o, i}) && kept.scalar_type() == at::kHalf &&
               kept.is_contiguous() && kept.device() == problem.a.device(),
           "flash_norm: expected kept gradients in float16 [{}, {}, {}], contiguous, on {}, got {} "
           "{} on {}",
           B, o, i, problem.a.device().str(), c10::toString(kept.scalar_type()),
           c10::str(kept.sizes()), kept.device().str());
  MS_CHECK(scale.defined() && scale.sizes() == at::IntArrayRef({B}) &&
               scale.scalar_type() == at::kFloat && scale.is_contiguous() &&
               scale.device() == problem.a.device(),
           "flash_norm: expected a scale in float32 [{}] on {} for each kept gradient, got {}; use "
           "keep_scales",
           B, problem.a.device().str(), scale.defined() ? scale.toString() : "none");
}

}  // namespace

bool flash_norm_supports(const SampleProblem& problem) {
  return sample_gemm_takes("flash_norm", problem, Needs::AnyGpu);
}

at::Tensor flash_norm(const std::vector<SampleProblem>& problems,
                      const std::vector<at::Tensor>& kept, const std::vector<at::Tensor>& scales) {
  const int64_t samples = check_sample_problems("flash_norm", problems);
  const size_t count = problems.size();
  MS_CHECK((kept.empty() || kept.size() == count) && (kept.empty() || scales.size() == count),
           "flash_norm: expected kept gradients and scales for all {} problems or for none, got {} "
           "and {}",
           count, kept.size(), scales.size());
  const at::Tensor& first = problems[0].a;
  at::Tensor squares =
      at::empty({static_cast<int64_t>(count), samples}, first.options().dtype(at::kDouble));

  const Variant variant = variant_of("flash_norm", first);
  const bool hopper = variant == Variant::Hopper;
  std::vector<FlashNormProblem> fast;
  std::vector<int64_t> fast_rows;
  for (size_t n = 0; n < count; ++n) {
    const at::Tensor target = kept.empty() ? at::Tensor() : kept[n];
    const at::Tensor scale = target.defined() ? scales[n] : at::Tensor();
    if (target.defined()) check_kept(problems[n], target, scale);
    const bool aligned =
        !target.defined() || reinterpret_cast<uintptr_t>(target.data_ptr()) % 16 == 0;
    if (target.defined() && variant == Variant::Portable)
      note_fallback("flash_norm", "kept gradients, which only the Hopper kernel writes");
    const bool takes_kept = !target.defined() || (hopper && aligned);
    if (takes_kept && flash_norm_supports(problems[n])) {
      fast.push_back({operands_of(problems[n]), target.defined() ? target.data_ptr() : nullptr,
                      target.defined() ? scale.data_ptr<float>() : nullptr});
      fast_rows.push_back(static_cast<int64_t>(n));
    } else {
      squares[static_cast<int64_t>(n)].copy_(flash_norm_ref(problems[n], target, scale));
    }
  }
  if (fast.empty()) return squares;
  const LaunchStream stream(first);
  const int fast_count = static_cast<int>(fast.size());
  const at::Tensor scratch =
      at::empty({hopper ? cuda().flash_norm_scratch(fast.data(), fast_count, GemmSchedule::Chosen)
                        : cuda().flash_norm_mma_scratch(fast.data(), fast_count)},
                first.options().dtype(at::kFloat));
  const bool all = fast.size() == count;
  const at::Tensor target =
      all ? squares : at::empty({fast_count, samples}, first.options().dtype(at::kDouble));
  if (hopper) {
    cuda().launch_flash_norm(fast.data(), fast_count, scratch.data_ptr<float>(),
                             target.data_ptr<double>(), GemmSchedule::Chosen, stream);
  } else {
    cuda().launch_flash_norm_mma(fast.data(), fast_count, scratch.data_ptr<float>(),
                                 target.data_ptr<double>(), stream);
  }
  if (!all) {
    for (size_t n = 0; n < fast.size(); ++n)
      squares[fast_rows[n]].copy_(target[static_cast<int64_t>(n)]);
  }
  return squares;
}

}  // namespace moonshard::kernels
