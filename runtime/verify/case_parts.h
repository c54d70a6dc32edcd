// What every comparison of one case is made of: a model of the subject in a format, and the options
// that the variant changes. Quiet and deterministic unless the variant says otherwise.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/comm/world.h"
#include "runtime/train/trainer.h"
#include "runtime/verify/cases.h"
#include "runtime/verify/reference.h"
#include "runtime/verify/verify.h"

namespace moonshard::verify {

/// Largest error so far of a kind of layer, and its quantity.
struct Worst {
  double error = 0;
  int64_t what = 0;
  void add(double candidate, const char* name);
  const char* name() const;
};
using WorstByCase = std::map<std::string, Worst>;

/// The largest of all ranks' errors, with its quantity; all ranks together.
void merge_over_ranks(comm::World& world, WorstByCase& worst);

/// Between the two middle ones, so that about half of the samples are clipped; below a single one.
double middle_of(const at::Tensor& norms);

class CaseParts {
 protected:
  CaseParts(const VerifyOptions& options, const Subject& subject, const Variant& variant,
            const Format& format, std::shared_ptr<comm::World> world);
  /// The model as the options describe it, before the variant changes it.
  models::ModelOptions model_options(const VerifyOptions& options) const;
  /// Runs it and gives the text of its error: a cell that fails. Empty without one. Interrupts, and
  /// ranks that are gone, end all cells.
  static std::string error_of(const std::function<void()>& comparison);
  Cell cell(const std::string& engine, const std::string& layer, const Worst& found,
            double tolerance, const std::string& error) const;

  /// Bounds of clip_groups: each the norm in the middle of its group's, so that about half of the
  /// samples are clipped. Their root of squares is in total_bound().
  void choose_group_bounds(const PerSample& gradients);
  double total_bound(const PerSample& gradients) const;

  Subject subject_;
  Variant variant_;
  Format format_;
  std::shared_ptr<comm::World> world_;
  sharding::ShardingOptions sharding_;
  std::shared_ptr<privacy::StepHooks> hooks_;
  privacy::ClipOptions clip_;
  train::StepOptions step_;
};

}  // namespace moonshard::verify
