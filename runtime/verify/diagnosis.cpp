#include "runtime/verify/diagnosis.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace moonshard::verify {
namespace {

// Of several samples: a single norm may be equal by chance of rounding in 16 bits.
bool are_identical(const std::vector<double>& a, const std::vector<double>& b) {
  return !a.empty() && a == b;
}

constexpr const char* kDiffer = "gathered norms differ between ranks";

template <class Accept>
const Cell* first_failure(const std::vector<Cell>& cells, const Accept& accept) {
  const auto found = std::find_if(cells.begin(), cells.end(),
                                  [&](const Cell& cell) { return !cell.ok && accept(cell); });
  return found == cells.end() ? nullptr : &*found;
}

std::string place_of(const Cell& cell) {
  return fmt::format("{} {} {}, layer {}, {}, {}", cell.engine, cell.model, cell.task, cell.layer,
                     cell.options, cell.dtype);
}

}  // namespace

void NormDiagnosis::add(const NormsShown& shown) {
  if (shown.by_rank.size() < 2) return;
  ++comparisons_;
  ranks_ = std::max(ranks_, shown.by_rank.size());
  for (size_t a = 0; a < shown.by_rank.size(); ++a) {
    for (size_t b = a + 1; b < shown.by_rank.size(); ++b) {
      if (!are_identical(shown.by_rank[a], shown.by_rank[b])) continue;
      if (identical_++ == 0)
        identical_title_ = fmt::format("ranks {} and {} of {}", a, b, shown.title);
    }
  }
  if (shown.before.size() != shown.expected.size()) return;
  for (size_t i = 0; i < shown.before.size(); ++i) {
    const double error = std::abs(shown.before[i] - shown.expected[i]) /
                         std::max(std::abs(shown.expected[i]), 1e-300);
    if (!(error > largest_error_)) continue;
    largest_error_ = error;
    largest_title_ = shown.title;
  }
}

std::vector<Diagnosis> NormDiagnosis::conclude(const std::vector<Cell>& cells) const {
  std::vector<Diagnosis> list;
  list.push_back(
      {"norms before ranks put them together differ", identical_ == 0,
       identical_ == 0
           ? fmt::format("yes, on {} ranks in {} comparisons: each rank has its own samples",
                         ranks_, comparisons_)
           : fmt::format("NO: identical on {}: these ranks train the same samples, or layers are "
                         "not sharded as they should be",
                         identical_title_)});
  const Cell* differ = first_failure(cells, [](const Cell& c) { return c.worst == kDiffer; });
  list.push_back({"norms afterwards are the same on all ranks", differ == nullptr,
                  differ == nullptr
                      ? "yes"
                      : fmt::format("NO: {}: the collective does not synchronise the ranks",
                                    place_of(*differ))});
  const Cell* wrong = first_failure(cells, [](const Cell& c) {
    return c.worst != kDiffer && c.worst.find("norm") != std::string::npos;
  });
  list.push_back(
      {"norms are those of one process", wrong == nullptr,
       wrong == nullptr
           ? fmt::format("yes, at most {:.1e} off, which their dtype allows{}", largest_error_,
                         largest_title_.empty() ? "" : " (" + largest_title_ + ")")
           : fmt::format("NO: {}: {} off by {:.1e}", place_of(*wrong), wrong->worst,
                         wrong->max_rel_err)});
  const Cell* bias =
      first_failure(cells, [](const Cell& c) { return c.layer.find("bias") != std::string::npos; });
  if (bias != nullptr)
    list.push_back({"layers with a bias hold", false,
                    fmt::format("NO: {}: {}: look at the bias term of its norm rule first",
                                place_of(*bias), bias->worst)});
  return list;
}

Json to_json(const std::vector<Diagnosis>& diagnoses) {
  Json list = Json::array();
  for (const Diagnosis& one : diagnoses)
    list.push_back({{"question", one.question}, {"good", one.good}, {"answer", one.answer}});
  return list;
}

}  // namespace moonshard::verify
