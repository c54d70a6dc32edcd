// Figures of an evaluation from what each sample gave: mean loss, perplexity, accuracy, F1 by
// class, each with the interval that other samples of the same kind would likely give. Shares of
// counts have Wilson's interval (1927), everything else a percentile bootstrap over samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/analysis/bootstrap.h"

namespace moonshard::analysis {

/// Of a standard normal: kIntervalLevel lies within it on both sides.
inline constexpr double kNormalQuantile = 1.959963984540054;

/// One entry per sample, in the order of the data. Lists that a task does not have are empty.
struct EvaluatedSamples {
  std::vector<double> losses;      ///< lm: mean over the sample's tokens
  std::vector<double> tokens;      ///< lm: how many of them are predicted
  std::vector<int64_t> labels;     ///< classify
  std::vector<int64_t> predicted;  ///< classify
  int64_t num_labels = 0;          ///< classify
};

struct ClassFigures {
  double count = 0, predicted = 0, correct = 0;
  double precision = 0, recall = 0, f1 = 0;  ///< 0 where nothing is divided by
  bool occurs = false;                       ///< among labels or predictions
  std::optional<Interval> recall_interval, f1_interval;
};

struct EvaluationFigures {
  int64_t samples = 0, tokens = 0;
  int64_t not_finite = 0;  ///< samples without a finite loss: they are in no mean
  double loss = 0;         ///< per token (lm) or per sample
  std::optional<Interval> loss_interval;
  // classify
  double accuracy = 0;  ///< the same as micro-averaged F1: every sample has one label
  double macro_f1 = 0;  ///< mean over the classes that occur
  std::optional<Interval> accuracy_interval, macro_f1_interval;
  std::vector<ClassFigures> classes;
  std::vector<double> confusion;  ///< [label x num_labels + predicted]
};

/// `with_intervals`: else only the figures. Throws UsageError for lists of different lengths.
EvaluationFigures evaluation_figures(const EvaluatedSamples& samples, bool with_intervals);

/// Accuracy and scores by class of a confusion matrix [num_labels x num_labels]; counts may be
/// noised, and below 0. `samples`: what the accuracy is divided by.
void add_class_figures(EvaluationFigures& figures, std::vector<double> confusion, double samples);

/// Where a share of `of` trials lies at the level of kIntervalLevel.
Interval wilson_interval(double count, double of);

}  // namespace moonshard::analysis
