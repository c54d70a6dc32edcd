#include "kernels/flash_norm/flash_norm.h"

#include <ATen/ATen.h>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

void check_kept(const SampleProblem& problem, const KeptGradient& kept) {
  const int64_t B = problem.a.size(0), o = problem.g.size(2), i = problem.a.size(2);
  const at::Tensor &numbers = kept.numbers, &units = kept.units;
  MS_CHECK(has_whole_units(i, o),
           "flash_norm: expected gradients of whole units of {} elements where they are kept, got "
           "[{}, {}]",
           kUnitElements, o, i);
  MS_CHECK(numbers.sizes() == at::IntArrayRef({B, o, i}) && numbers.scalar_type() == at::kHalf &&
               numbers.is_contiguous() && numbers.device() == problem.a.device(),
           "flash_norm: expected kept gradients in float16 [{}, {}, {}], contiguous, on {}, got {} "
           "{} on {}; use empty_kept",
           B, o, i, problem.a.device().str(), c10::toString(numbers.scalar_type()),
           c10::str(numbers.sizes()), numbers.device().str());
  MS_CHECK(units.defined() && units.sizes() == at::IntArrayRef({B, o * i / kUnitElements}) &&
               units.scalar_type() == at::kFloat && units.stride(1) == 1 &&
               units.device() == problem.a.device(),
           "flash_norm: expected units in float32 [{}, {}] on {} for each kept gradient, got {}; "
           "use empty_kept",
           B, o * i / kUnitElements, problem.a.device().str(),
           units.defined() ? units.toString() : "none");
}

}  // namespace

bool flash_norm_supports(const SampleProblem& problem) {
  return sample_gemm_takes("flash_norm", problem, Needs::AnyGpu);
}

KeptGradients empty_kept(const std::vector<SampleProblem>& problems) {
  KeptGradients kept;
  const auto units_of = [](const SampleProblem& problem) {
    return problem.g.size(2) * problem.a.size(2) / kUnitElements;
  };
  int64_t all = 0, first = 0;
  for (const SampleProblem& problem : problems) all += units_of(problem);
  const at::Tensor& like = problems.at(0).g;
  kept.units = at::empty({like.size(0), all}, like.options().dtype(at::kFloat));
  for (const SampleProblem& problem : problems) {
    const at::Tensor& a = problem.a;
    kept.of.push_back(
        {at::empty({a.size(0), problem.g.size(2), a.size(2)}, a.options().dtype(at::kHalf)),
         kept.units.narrow(1, first, units_of(problem))});
    first += units_of(problem);
  }
  return kept;
}

at::Tensor flash_norm(const std::vector<SampleProblem>& problems,
                      const std::vector<KeptGradient>& kept) {
  const int64_t samples = check_sample_problems("flash_norm", problems);
  const size_t count = problems.size();
  MS_CHECK(kept.empty() || kept.size() == count,
           "flash_norm: expected kept gradients for all {} problems or for none, got {}", count,
           kept.size());
  const at::Tensor& first = problems[0].a;
  at::Tensor squares =
      at::empty({static_cast<int64_t>(count), samples}, first.options().dtype(at::kDouble));

  const Variant variant = variant_of("flash_norm", first);
  const bool hopper = variant == Variant::Hopper;
  std::vector<FlashNormProblem> fast;
  std::vector<int64_t> fast_rows;
  for (size_t n = 0; n < count; ++n) {
    const KeptGradient target = kept.empty() ? KeptGradient() : kept[n];
    if (target.defined()) check_kept(problems[n], target);
    const bool aligned =
        !target.defined() || reinterpret_cast<uintptr_t>(target.numbers.data_ptr()) % 16 == 0;
    if (target.defined() && variant == Variant::Portable)
      note_fallback("flash_norm", "kept gradients, which only the Hopper kernel writes");
    const bool takes_kept = !target.defined() || (hopper && aligned);
    if (takes_kept && flash_norm_supports(problems[n])) {
      fast.push_back({operands_of(problems[n]),
                      target.defined() ? target.numbers.data_ptr() : nullptr,
                      target.defined() ? target.units.data_ptr<float>() : nullptr,
                      target.defined() ? target.units.stride(0) : 0});
      fast_rows.push_back(static_cast<int64_t>(n));
    } else {
      squares[static_cast<int64_t>(n)].copy_(flash_norm_ref(problems[n], target));
    }
  }
  if (fast.empty()) return squares;
  const LaunchStream stream(first);
  const int fast_count = static_cast<int>(fast.size());
  const at::Tensor scratch =
      at::empty({hopper ? cuda().flash_norm_scratch(fast.data(), fast_count, GemmSchedule::Chosen)
                        : cuda().flash_norm_mma_scratch(fast.data(), fast_count)},
                first.options().dtype(at::kDouble));
  const bool all = fast.size() == count;
  const at::Tensor target =
      all ? squares : at::empty({fast_count, samples}, first.options().dtype(at::kDouble));
  if (hopper) {
    cuda().launch_flash_norm(fast.data(), fast_count, scratch.data_ptr<double>(),
                             target.data_ptr<double>(), GemmSchedule::Chosen, stream);
  } else {
    cuda().launch_flash_norm_mma(fast.data(), fast_count, scratch.data_ptr<double>(),
                                 target.data_ptr<double>(), stream);
  }
  if (!all) {
    for (size_t n = 0; n < fast.size(); ++n)
      squares[fast_rows[n]].copy_(target[static_cast<int64_t>(n)]);
  }
  return squares;
}

}  // namespace moonshard::kernels
