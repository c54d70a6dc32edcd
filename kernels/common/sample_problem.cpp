#include "kernels/common/sample_problem.h"

#include <limits>

#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

constexpr int64_t kAlignment = 8;  // bfloat16 elements in 16 bytes

// Empty where the copy engine can read x, else why it cannot.
const char* refusal(const at::Tensor& x, int64_t row_stride, int64_t sample_stride) {
  if (x.size(2) % kAlignment != 0) return "a width that is no multiple of 8";
  if (x.stride(2) != 1 && x.size(2) != 1) return "rows that are not contiguous";
  if (row_stride < x.size(2) || row_stride % kAlignment != 0)
    return "rows that do not start at multiples of 16 bytes";
  if (sample_stride <= 0 || sample_stride % kAlignment != 0)
    return "samples that do not start at multiples of 16 bytes";
  if (reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 != 0)
    return "data that does not start at a multiple of 16 bytes";
  // Far below the copy engine's limits of 2^32 elements and 2^40 bytes; indices are 32-bit.
  constexpr int64_t kMostElements = std::numeric_limits<int32_t>::max() / 2;
  if (x.size(0) > kMostElements || x.size(1) > kMostElements || x.size(2) > kMostElements)
    return "a dimension of more than 2^30";
  return nullptr;
}

}  // namespace

void check_sample_problem(const char* operation, const SampleProblem& problem) {
  const at::Tensor &a = problem.a, &g = problem.g;
  MS_CHECK(a.dim() == 3 && g.dim() == 3 && a.size(0) == g.size(0) && a.size(1) == g.size(1),
           "{}: expected a [B, T, i] and g [B, T, o], got {} and {}; flatten the positions first",
           operation, c10::str(a.sizes()), c10::str(g.sizes()));
  MS_CHECK(a.scalar_type() == g.scalar_type() && a.device() == g.device(),
           "{}: expected a and g of one format on one device, got {} on {} and {} on {}", operation,
           c10::toString(a.scalar_type()), a.device().str(), c10::toString(g.scalar_type()),
           g.device().str());
}

int64_t check_sample_problems(const char* operation, const std::vector<SampleProblem>& problems) {
  MS_CHECK(!problems.empty(), "{}: expected at least one problem, got none", operation);
  for (const SampleProblem& problem : problems) {
    check_sample_problem(operation, problem);
    MS_CHECK(problem.a.size(0) == problems[0].a.size(0),
             "{}: expected the same number of samples in all problems, got {} and {}", operation,
             problems[0].a.size(0), problem.a.size(0));
  }
  return problems[0].a.size(0);
}

bool sample_gemm_takes(const char* operation, const SampleProblem& problem, Needs needs) {
  if (!kernel_runs(operation, problem.a, needs)) return false;
  if (problem.a.numel() == 0 || problem.g.numel() == 0) return false;
  if (problem.a.scalar_type() != at::kBFloat16 || problem.g.scalar_type() != at::kBFloat16) {
    note_fallback(operation, std::string("operands in ") + c10::toString(problem.a.scalar_type()) +
                                 ", not bfloat16");
    return false;
  }
  const SampleOperands in = operands_of(problem);
  const char* why = refusal(problem.a, in.a_row, in.a_sample);
  if (why == nullptr) why = refusal(problem.g, in.g_row, in.g_sample);
  if (why != nullptr) note_fallback(operation, why);
  return why == nullptr;
}

SampleOperands operands_of(const SampleProblem& problem) {
  const at::Tensor &a = problem.a, &g = problem.g;
  SampleOperands in;
  in.a = a.data_ptr();
  in.g = g.data_ptr();
  in.samples = a.size(0);
  in.positions = a.size(1);
  in.i = a.size(2);
  in.o = g.size(2);
  // A dimension of size 1 may have any stride, yet it becomes part of the copy engine's tensor.
  in.a_row = in.positions == 1 ? in.i : a.stride(1);
  in.g_row = in.positions == 1 ? in.o : g.stride(1);
  in.a_sample = in.samples == 1 ? in.a_row * in.positions : a.stride(0);
  in.g_sample = in.samples == 1 ? in.g_row * in.positions : g.stride(0);
  return in;
}

}  // namespace moonshard::kernels
