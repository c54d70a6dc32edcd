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

// The tables of one launch.
struct LengthTables {
  std::vector<LengthRows> rows;
  std::vector<LengthPair> pairs;
  at::Tensor scratch;

  // Problems [first, last), few enough. Of those whose lengths are known, no rows.
  LengthTables(const std::vector<SampleProblem>& problems, int64_t first, int64_t last,
               const std::vector<FoundSquares>& found = {}) {
    for (int64_t n = first; n < last; ++n) {
      const SampleProblem& problem = problems[static_cast<size_t>(n)];
      if (!found.empty() && found[static_cast<size_t>(n)].length.defined()) {
        pairs.push_back({kNoRows, kNoRows});
        continue;
      }
      const int a = number_of(rows, problem.a);
      pairs.push_back({a, number_of(rows, problem.g)});
    }
    int64_t all = 0;
    for (const LengthRows& set : rows) all += set.samples * set.positions;
    scratch = at::empty({all}, problems[0].a.options().dtype(at::kDouble));
  }
  int num_rows() const { return static_cast<int>(rows.size()); }
  int num_pairs() const { return static_cast<int>(pairs.size()); }
};

void launch_some(const std::vector<SampleProblem>& problems, int64_t first, int64_t last,
                 at::Tensor& lengths, at::Tensor* spreads) {
  const LengthTables tables(problems, first, last);
  cuda().launch_position_lengths(
      tables.rows.data(), tables.num_rows(), tables.pairs.data(), tables.num_pairs(),
      tables.scratch.data_ptr<double>(), lengths[first].data_ptr<double>(),
      spreads != nullptr ? (*spreads)[first].data_ptr<double>() : nullptr, stream_of(lengths));
}

SquareTerm term_of(const SampleProblem& problem, const FoundSquares& found) {
  const int64_t width = std::max(problem.a.size(2), problem.g.size(2));
  SquareTerm term;
  term.source = found.source;
  if (found.source == NormSource::OnePosition) return term;
  term.value = found.value.data_ptr<double>();
  if (found.source == NormSource::Gram) {
    term.magnitude = found.magnitude.data_ptr<double>();
    term.underflow = kLostProducts * static_cast<double>(width);
    if (found.length.defined()) {
      term.length = found.length.data_ptr<double>();
      term.spread = found.spread.data_ptr<double>();
    }
  } else {
    term.gain = cut_off_squares(problem.a.size(1));
  }
  return term;
}

void check_found(const SampleProblem& problem, const FoundSquares& found) {
  const auto fits = [&](const at::Tensor& x) {
    return x.defined() && x.scalar_type() == at::kDouble && x.is_contiguous() &&
           x.sizes() == at::IntArrayRef({problem.a.size(0)}) && x.device() == problem.a.device();
  };
  const bool right =
      found.source == NormSource::OnePosition
          ? problem.a.size(1) == 1
          : fits(found.value) && (found.source == NormSource::Gradient || fits(found.magnitude)) &&
                (!found.length.defined() ||
                 (found.source == NormSource::Gram && fits(found.length) && fits(found.spread)));
  MS_CHECK(right,
           "bounded_squares: expected one position, or squares in float64 [{}] on {} (of Gram "
           "matrices with magnitudes), got {} positions and {}",
           problem.a.size(0), problem.a.device().str(), problem.a.size(1),
           found.value.defined() ? found.value.toString() : "no squares");
}

// Runs of problems that the kernel takes, and those that it does not take one by one.
template <class Launch, class Reference>
void for_runs(const std::vector<SampleProblem>& problems, Launch launch, Reference reference) {
  const auto count = static_cast<int64_t>(problems.size());
  for (int64_t first = 0; first < count;) {
    int64_t last = first;
    while (last < count && last - first < kMostLengthPairs &&
           takes(problems[static_cast<size_t>(last)]))
      ++last;
    if (last > first) {
      launch(first, last);
      first = last;
    } else {
      reference(first++);
    }
  }
}

}  // namespace

at::Tensor position_lengths(const std::vector<SampleProblem>& problems, at::Tensor* spreads) {
  const int64_t samples = check_sample_problems("position_lengths", problems);
  const auto count = static_cast<int64_t>(problems.size());
  at::Tensor lengths = at::empty({count, samples}, problems[0].a.options().dtype(at::kDouble));
  if (spreads != nullptr) *spreads = at::empty_like(lengths);
  for_runs(
      problems,
      [&](int64_t first, int64_t last) { launch_some(problems, first, last, lengths, spreads); },
      [&](int64_t n) {
        at::Tensor own;
        lengths[n].copy_(position_lengths_ref(problems[static_cast<size_t>(n)],
                                              spreads != nullptr ? &own : nullptr));
        if (spreads != nullptr) (*spreads)[n].copy_(own);
      });
  return lengths;
}

at::Tensor bounded_squares(const std::vector<SampleProblem>& problems,
                           const std::vector<FoundSquares>& found) {
  const int64_t samples = check_sample_problems("bounded_squares", problems);
  MS_CHECK(found.size() == problems.size(),
           "bounded_squares: expected squares of {} problems, got {}", problems.size(),
           found.size());
  for (size_t n = 0; n < found.size(); ++n) check_found(problems[n], found[n]);
  at::Tensor squares = at::empty({static_cast<int64_t>(problems.size()), samples},
                                 problems[0].a.options().dtype(at::kDouble));
  for_runs(
      problems,
      [&](int64_t first, int64_t last) {
        const LengthTables tables(problems, first, last, found);
        std::vector<SquareTerm> terms;
        for (auto n = static_cast<size_t>(first); n < static_cast<size_t>(last); ++n)
          terms.push_back(term_of(problems[n], found[n]));
        cuda().launch_bounded_squares(tables.rows.data(), tables.num_rows(), tables.pairs.data(),
                                      terms.data(), tables.num_pairs(), samples,
                                      tables.scratch.data_ptr<double>(),
                                      squares[first].data_ptr<double>(), stream_of(squares));
      },
      [&](int64_t n) {
        const auto at = static_cast<size_t>(n);
        squares[n].copy_(bounded_squares_ref(problems[at], found[at]));
      });
  return squares;
}

}  // namespace moonshard::kernels
