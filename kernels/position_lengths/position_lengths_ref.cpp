#include <algorithm>

#include <ATen/ATen.h>

#include "kernels/position_lengths/position_lengths.h"

namespace moonshard::kernels {

at::Tensor position_lengths_ref(const SampleProblem& problem, at::Tensor* spreads) {
  constexpr double kRoundUp = 1.00001;
  const auto row_lengths = [](const at::Tensor& x) {
    return x.to(at::kDouble).square().sum(2).sqrt();
  };
  const at::Tensor a = row_lengths(problem.a), g = row_lengths(problem.g);
  if (spreads != nullptr) *spreads = (a.sum(1).square() + g.sum(1).square()).mul_(kRoundUp);
  return (a * g).sum(1).mul_(kRoundUp);
}

at::Tensor bounded_squares_ref(const SampleProblem& problem, const FoundSquares& found) {
  const at::Tensor &a = problem.a, &g = problem.g;
  if (found.source == NormSource::OnePosition) {
    // In double: a factor that float32 lost would take the other, however large, with it.
    const auto squares = [](const at::Tensor& x) { return x.to(at::kDouble).square().sum({1, 2}); };
    return squares(a) * squares(g);
  }
  at::Tensor spreads = found.spread;
  const at::Tensor lengths =
      found.length.defined() ? found.length : position_lengths_ref(problem, &spreads);
  const at::Tensor squares = found.source == NormSource::Gram
                                 ? bounded_gram(found.value, found.magnitude) +
                                       gram_underflow(spreads, std::max(a.size(2), g.size(2)))
                                 : found.value * cut_off_squares(a.size(1));
  return with_rounding_of_sum(squares, lengths, at::kFloat);
}

}  // namespace moonshard::kernels
