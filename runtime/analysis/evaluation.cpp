#include "runtime/analysis/evaluation.h"

#include <algorithm>
#include <cmath>

#include "runtime/analysis/rows.h"
#include "runtime/base/check.h"

namespace moonshard::analysis {
namespace {

// Draws that a bootstrap may take: a second at most. Large data needs fewer resamples, whose
// quantiles then scatter by a few percent of the interval.
constexpr double kMostDraws = 5e7;
constexpr size_t kLeastResamples = 200;

// A generator with enough states for a million samples (xorshift64*, fixed start: equal data has
// equal intervals).
class SampleDraw {
 public:
  size_t below(size_t count) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    const uint64_t word = state_ * 2685821657736338717ULL;
    return static_cast<size_t>((word >> 32) * static_cast<uint64_t>(count) >> 32);
  }

 private:
  uint64_t state_ = 20261116;
};

double share(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0.0;
}

double f1_of(double correct, double count, double predicted) {
  return share(2 * correct, count + predicted);
}

// Of one resample: what its figures are made of.
struct Sums {
  explicit Sums(size_t num_labels)
      : count(num_labels, 0), predicted(num_labels, 0), correct(num_labels, 0) {}
  void clear() {
    loss = weight = 0;
    for (auto* list : {&count, &predicted, &correct}) std::fill(list->begin(), list->end(), 0.0);
  }
  double macro_f1() const {
    double sum = 0, classes = 0;
    for (size_t c = 0; c < count.size(); ++c) {
      if (count[c] + predicted[c] == 0) continue;
      sum += f1_of(correct[c], count[c], predicted[c]);
      ++classes;
    }
    return classes > 0 ? sum / classes : 0;
  }
  double loss = 0, weight = 0;
  std::vector<double> count, predicted, correct;
};

Interval middle_of(double value, std::vector<double>& results) {
  constexpr double kOutside = (1 - kIntervalLevel / 100) / 2;
  return {value, quantile(results, kOutside), quantile(results, 1 - kOutside)};
}

void bootstrap(const EvaluatedSamples& samples, EvaluationFigures& figures) {
  const size_t n = samples.losses.size(), classes = figures.classes.size();
  if (n < kLeastSamples) return;
  const auto resamples = std::clamp(static_cast<size_t>(kMostDraws / static_cast<double>(n)),
                                    kLeastResamples, kResamples);
  std::vector<double> losses, macro;
  std::vector<std::vector<double>> f1(classes);
  SampleDraw draw;
  Sums sums(classes);
  for (size_t r = 0; r < resamples; ++r) {
    sums.clear();
    for (size_t i = 0; i < n; ++i) {
      const size_t at = draw.below(n);
      if (std::isfinite(samples.losses[at])) {
        const double weight = samples.tokens.empty() ? 1 : samples.tokens[at];
        sums.loss += weight * samples.losses[at];
        sums.weight += weight;
      }
      if (classes == 0) continue;
      const auto label = static_cast<size_t>(samples.labels[at]);
      const auto predicted = static_cast<size_t>(samples.predicted[at]);
      ++sums.count[label];
      ++sums.predicted[predicted];
      if (label == predicted) ++sums.correct[label];
    }
    if (sums.weight > 0) losses.push_back(sums.loss / sums.weight);
    if (classes == 0) continue;
    macro.push_back(sums.macro_f1());
    for (size_t c = 0; c < classes; ++c)
      f1[c].push_back(f1_of(sums.correct[c], sums.count[c], sums.predicted[c]));
  }
  if (!losses.empty()) figures.loss_interval = middle_of(figures.loss, losses);
  if (classes == 0) return;
  figures.macro_f1_interval = middle_of(figures.macro_f1, macro);
  for (size_t c = 0; c < classes; ++c)
    if (figures.classes[c].occurs)
      figures.classes[c].f1_interval = middle_of(figures.classes[c].f1, f1[c]);
}

void check_lists(const EvaluatedSamples& samples) {
  const size_t n = samples.losses.size();
  MS_CHECK(n > 0, "evaluate: expected at least one sample, got none");
  MS_CHECK(samples.tokens.empty() || samples.tokens.size() == n,
           "evaluate: expected token counts of {} samples, got {}", n, samples.tokens.size());
  MS_CHECK(samples.labels.size() == samples.predicted.size() &&
               (samples.labels.empty() || samples.labels.size() == n),
           "evaluate: expected labels and predictions of {} samples, got {} and {}", n,
           samples.labels.size(), samples.predicted.size());
  for (const auto* list : {&samples.labels, &samples.predicted})
    for (const int64_t label : *list)
      MS_CHECK(label >= 0 && label < samples.num_labels,
               "evaluate: expected classes from 0 to {}, got {}", samples.num_labels - 1, label);
}

}  // namespace

Interval wilson_interval(double count, double of) {
  const double p = count / of, z2 = kNormalQuantile * kNormalQuantile;
  const double middle = (p + z2 / (2 * of)) / (1 + z2 / of);
  const double half =
      kNormalQuantile * std::sqrt(p * (1 - p) / of + z2 / (4 * of * of)) / (1 + z2 / of);
  return {p, std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

void add_class_figures(EvaluationFigures& figures, std::vector<double> confusion, double samples) {
  const auto classes = static_cast<size_t>(std::lround(std::sqrt(confusion.size())));
  MS_ASSERT(classes * classes == confusion.size(), "a confusion matrix of {} cells",
            confusion.size());
  figures.classes.assign(classes, {});
  double correct = 0, f1 = 0, occurring = 0;
  for (size_t c = 0; c < classes; ++c) {
    ClassFigures& own = figures.classes[c];
    for (size_t other = 0; other < classes; ++other) {
      own.count += confusion[c * classes + other];
      own.predicted += confusion[other * classes + c];
    }
    own.correct = confusion[c * classes + c];
    correct += own.correct;
    own.occurs = own.count > 0 || own.predicted > 0;
    own.precision = share(own.correct, own.predicted);
    own.recall = share(own.correct, own.count);
    own.f1 = f1_of(own.correct, own.count, own.predicted);
    if (!own.occurs) continue;
    f1 += own.f1;
    ++occurring;
  }
  figures.accuracy = share(correct, samples);
  figures.macro_f1 = occurring > 0 ? f1 / occurring : 0;
  figures.confusion = std::move(confusion);
}

EvaluationFigures evaluation_figures(const EvaluatedSamples& samples, bool with_intervals) {
  check_lists(samples);
  EvaluationFigures figures;
  figures.samples = static_cast<int64_t>(samples.losses.size());
  double loss = 0, weights = 0;
  for (size_t i = 0; i < samples.losses.size(); ++i) {
    const double weight = samples.tokens.empty() ? 1 : samples.tokens[i];
    figures.tokens += samples.tokens.empty() ? 0 : static_cast<int64_t>(weight);
    if (!std::isfinite(samples.losses[i])) {
      ++figures.not_finite;
      continue;
    }
    loss += weight * samples.losses[i];
    weights += weight;
  }
  figures.loss = weights > 0 ? loss / weights : NAN;
  if (!samples.labels.empty()) {
    const auto classes = static_cast<size_t>(samples.num_labels);
    std::vector<double> confusion(classes * classes, 0);
    for (size_t i = 0; i < samples.labels.size(); ++i)
      ++confusion[static_cast<size_t>(samples.labels[i]) * classes +
                  static_cast<size_t>(samples.predicted[i])];
    add_class_figures(figures, std::move(confusion), static_cast<double>(figures.samples));
    double correct = 0;
    for (ClassFigures& own : figures.classes) {
      correct += own.correct;
      if (with_intervals && own.count > 0)
        own.recall_interval = wilson_interval(own.correct, own.count);
    }
    if (with_intervals)
      figures.accuracy_interval = wilson_interval(correct, static_cast<double>(figures.samples));
  }
  if (with_intervals) bootstrap(samples, figures);
  return figures;
}

}  // namespace moonshard::analysis
