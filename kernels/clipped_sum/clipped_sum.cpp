#include "kernels/clipped_sum/clipped_sum.h"

#include <ATen/ATen.h>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

void check_out(const SampleProblem& problem, const at::Tensor& out) {
  const int64_t o = problem.g.size(2), i = problem.a.size(2);
  MS_CHECK(out.defined() && out.sizes() == at::IntArrayRef({o, i}) &&
               (out.scalar_type() == at::kFloat || out.scalar_type() == at::kDouble) &&
               out.device() == problem.a.device(),
           "clipped_sum: expected a result in float32 [{}, {}] on {}, got {}", o, i,
           problem.a.device().str(),
           out.defined() ? c10::str(out.scalar_type(), " ", out.sizes(), " on ", out.device())
                         : std::string("none"));
}

bool aligned(const at::Tensor& out) {
  return out.scalar_type() == at::kFloat && out.stride(1) == 1 && out.stride(0) % 4 == 0 &&
         out.stride(0) >= out.size(1) && reinterpret_cast<uintptr_t>(out.data_ptr()) % 16 == 0;
}

// Samples [first, first + some) of all problems.
std::vector<ClippedSumProblem> narrowed(const std::vector<ClippedSumProblem>& problems,
                                        int64_t first, int64_t some) {
  std::vector<ClippedSumProblem> result = problems;
  for (ClippedSumProblem& problem : result) {
    constexpr int64_t kElementBytes = 2;
    SampleOperands& in = problem.in;
    in.a = static_cast<const char*>(in.a) + first * in.a_sample * kElementBytes;
    in.g = static_cast<const char*>(in.g) + first * in.g_sample * kElementBytes;
    in.samples = some;
  }
  return result;
}

bool outer_takes(const at::Tensor& out) {
  return out.scalar_type() == at::kFloat && out.stride(1) == 1 && out.stride(0) >= out.size(1);
}

}  // namespace

bool outer_sum_supports(const SampleProblem& problem) {
  const at::Tensor &a = problem.a, &g = problem.g;
  const auto rows = [](const at::Tensor& x) { return x.stride(2) == 1 || x.size(2) == 1; };
  return a.size(1) == 1 && a.numel() > 0 && g.numel() > 0 &&
         (a.scalar_type() == at::kBFloat16 || a.scalar_type() == at::kFloat) && rows(a) &&
         rows(g) && kernel_runs("clipped_sum", a);
}

bool clipped_sum_supports(const SampleProblem& problem) {
  return sample_gemm_takes("clipped_sum", problem);
}

void clipped_sum(const std::vector<SampleProblem>& problems, const at::Tensor& factors,
                 std::vector<at::Tensor>& out, bool accumulate) {
  const int64_t samples = check_sample_problems("clipped_sum", problems);
  const at::Tensor& first = problems[0].a;
  MS_CHECK(out.size() == problems.size(), "clipped_sum: expected {} results, got {}",
           problems.size(), out.size());
  MS_CHECK(factors.sizes() == at::IntArrayRef({samples}) && factors.scalar_type() == at::kFloat &&
               factors.is_contiguous() && factors.device() == first.device(),
           "clipped_sum: expected factors in float32 [{}], contiguous, on {}, got {} {} on {}",
           samples, first.device().str(), c10::toString(factors.scalar_type()),
           c10::str(factors.sizes()), factors.device().str());
  std::vector<ClippedSumProblem> fast;
  std::vector<OuterSumProblem> outer;
  for (size_t n = 0; n < problems.size(); ++n) {
    check_out(problems[n], out[n]);
    if (outer_sum_supports(problems[n]) && outer_takes(out[n]))
      outer.push_back({operands_of(problems[n]), problems[n].a.scalar_type() == at::kBFloat16,
                       out[n].data_ptr<float>(), out[n].stride(0)});
    else if (clipped_sum_supports(problems[n]) && aligned(out[n]))
      fast.push_back({operands_of(problems[n]), out[n].data_ptr<float>(), out[n].stride(0)});
    else
      clipped_sum_ref(problems[n], factors, out[n], accumulate);
  }
  if (fast.empty() && outer.empty()) return;
  const LaunchStream stream(first);
  if (!outer.empty())
    cuda().launch_outer_sum(outer.data(), static_cast<int>(outer.size()), factors.data_ptr<float>(),
                            accumulate, stream);
  if (fast.empty()) return;
  for (int64_t from = 0; from < samples; from += kClippedSumSamples) {
    const int64_t some = std::min(kClippedSumSamples, samples - from);
    const std::vector<ClippedSumProblem> part = narrowed(fast, from, some);
    const int count = static_cast<int>(part.size());
    const ClippedSumPlan plan = cuda().plan_clipped_sum(part.data(), count, {});
    const at::Tensor scratch = at::empty({plan.scratch}, first.options().dtype(at::kFloat));
    cuda().launch_clipped_sum(part.data(), count, factors.data_ptr<float>() + from,
                              accumulate || from > 0, plan,
                              plan.scratch > 0 ? scratch.data_ptr<float>() : nullptr, stream);
  }
}

}  // namespace moonshard::kernels
