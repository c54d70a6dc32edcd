#include "kernels/position_lengths/position_lengths.h"

#include <ATen/ATen.h>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

bool takes(const SampleProblem& problem) {
  if (!kernel_runs("position_lengths", problem.a)) return false;
  if (problem.a.numel() == 0 || problem.g.numel() == 0) return false;
  const at::ScalarType type = problem.a.scalar_type();
  const bool known = type == at::kFloat || type == at::kBFloat16;
  const bool rows = problem.a.stride(2) == 1 && problem.g.stride(2) == 1;
  if (!known)
    note_fallback("position_lengths", std::string("operands in ") + c10::toString(type));
  else if (!rows)
    note_fallback("position_lengths", "rows that are not contiguous");
  return known && rows;
}

LengthRows rows_of(const at::Tensor& x) {
  LengthRows rows;
  rows.data = x.data_ptr();
  rows.samples = x.size(0);
  rows.positions = x.size(1);
  rows.width = x.size(2);
  rows.row_stride = x.stride(1);
  rows.sample_stride = x.stride(0);
  rows.bfloat16 = x.scalar_type() == at::kBFloat16;
  return rows;
}

bool same_rows(const LengthRows& x, const LengthRows& y) {
  return x.data == y.data && x.samples == y.samples && x.positions == y.positions &&
         x.width == y.width && x.row_stride == y.row_stride && x.sample_stride == y.sample_stride &&
         x.bfloat16 == y.bfloat16;
}

int number_of(std::vector<LengthRows>& known, const at::Tensor& x) {
  const LengthRows rows = rows_of(x);
  for (size_t n = 0; n < known.size(); ++n)
    if (same_rows(known[n], rows)) return static_cast<int>(n);
  known.push_back(rows);
  return static_cast<int>(known.size()) - 1;
}

// Problems [first, last), few enough for the tables of one launch.
void launch_some(const std::vector<SampleProblem>& problems, int64_t first, int64_t last,
                 at::Tensor& lengths, at::Tensor* spreads) {
  std::vector<LengthRows> rows;
  std::vector<LengthPair> pairs;
  for (int64_t n = first; n < last; ++n) {
    const SampleProblem& problem = problems[static_cast<size_t>(n)];
    const int a = number_of(rows, problem.a);
    pairs.push_back({a, number_of(rows, problem.g)});
  }
  int64_t num_rows = 0;
  for (const LengthRows& set : rows) num_rows += set.samples * set.positions;
  const at::Tensor scratch = at::empty({num_rows}, lengths.options());
  at::Tensor target = lengths.narrow(0, first, last - first);
  cuda().launch_position_lengths(
      rows.data(), static_cast<int>(rows.size()), pairs.data(), static_cast<int>(pairs.size()),
      scratch.data_ptr<double>(), target.data_ptr<double>(),
      spreads != nullptr ? spreads->narrow(0, first, last - first).data_ptr<double>() : nullptr,
      stream_of(lengths));
}

}  // namespace

at::Tensor position_lengths(const std::vector<SampleProblem>& problems, at::Tensor* spreads) {
  const int64_t samples = check_sample_problems("position_lengths", problems);
  const auto count = static_cast<int64_t>(problems.size());
  at::Tensor lengths = at::empty({count, samples}, problems[0].a.options().dtype(at::kDouble));
  if (spreads != nullptr) *spreads = at::empty_like(lengths);
  // Runs of problems that the kernel takes; what it does not take comes one by one.
  for (int64_t first = 0; first < count;) {
    int64_t last = first;
    while (last < count && last - first < kMostLengthPairs &&
           takes(problems[static_cast<size_t>(last)]))
      ++last;
    if (last > first) {
      launch_some(problems, first, last, lengths, spreads);
      first = last;
    } else {
      at::Tensor own;
      lengths[first].copy_(position_lengths_ref(problems[static_cast<size_t>(first)],
                                                spreads != nullptr ? &own : nullptr));
      if (spreads != nullptr) (*spreads)[first].copy_(own);
      ++first;
    }
  }
  return lengths;
}

at::Tensor keep_scales(const at::Tensor& lengths) {
  MS_CHECK(lengths.scalar_type() == at::kDouble && lengths.is_contiguous(),
           "keep_scales: expected contiguous lengths in float64, got {} of strides {}",
           c10::toString(lengths.scalar_type()), c10::str(lengths.strides()));
  if (lengths.numel() == 0 || !kernel_runs("keep_scales", lengths)) return keep_scales_ref(lengths);
  at::Tensor scales = at::empty(lengths.sizes(), lengths.options().dtype(at::kFloat));
  cuda().launch_keep_scales(lengths.data_ptr<double>(), scales.data_ptr<float>(), lengths.numel(),
                            stream_of(lengths));
  return scales;
}

}  // namespace moonshard::kernels
