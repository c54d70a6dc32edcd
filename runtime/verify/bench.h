// One model, batch and reference, which all engines are compared with.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/data/dataset_source.h"
#include "runtime/verify/case_parts.h"
#include "runtime/verify/cases.h"
#include "runtime/verify/reference.h"
#include "runtime/verify/verify.h"

namespace moonshard::verify {

class Bench : private CaseParts {
 public:
  Bench(const VerifyOptions& options, const Subject& subject, const Variant& variant,
        const Format& format, std::shared_ptr<comm::World> world);
  ~Bench();

  std::vector<Cell> run(const std::string& engine, const Observer& observer);

 private:
  /// What a step gets.
  struct PlannedStep {
    Batch batch;                   ///< of all ranks, in their order
    int64_t first = 0, count = 0;  ///< this rank's samples of it
  };
  /// What it must find, and leave behind.
  struct ExpectedStep {
    double bound = 0, bound_after = 0;
    Expected clipping;                           ///< of private engines
    std::map<std::string, at::Tensor> gradient;  ///< that the optimizer is given
    std::vector<at::Tensor> weights;             ///< afterwards, by parameter, double
  };

  std::string case_of(const Group& group) const;
  void plan_steps();
  void plan_draws();
  void restore_start();
  PerSample reference_gradients(const Batch& batch, int64_t step);
  void choose_bound(const PerSample& gradients);
  const std::vector<ExpectedStep>& trajectory(bool is_private);
  ExpectedStep expected_step(size_t index, const privacy::ClipOptions& clip, bool is_private,
                             const kernels::ChaChaKey* secret);
  void add_expected_noise(ExpectedStep& step, size_t index, const privacy::ClipOptions& clip,
                          const kernels::ChaChaKey* secret) const;
  ExpectedStep secret_step(const kernels::ChaChaKey* secret);
  double denominator(size_t index) const;
  // In bench_compare.cpp:
  std::unique_ptr<data::Source> source() const;
  void compare(const std::string& engine, WorstByCase& worst, const Observer& observer);
  void compare_norms(const PlannedStep& given, const ExpectedStep& want,
                     const train::StepReport& report, WorstByCase& worst) const;
  void compare_gathered_norms(const ExpectedStep& want, const train::StepReport& report,
                              WorstByCase& worst) const;
  void compare_gradients(const ExpectedStep& want, const std::map<std::string, at::Tensor>& used,
                         WorstByCase& worst) const;
  void compare_weights(const ExpectedStep& want, WorstByCase& worst) const;
  void show(const PlannedStep& given, const ExpectedStep& want, const train::StepReport& report,
            const std::string& engine, const Observer& observer) const;

  optim::OptimizerOptions optimizer_;
  std::shared_ptr<models::Model> model_;
  Batch batch_;  ///< all samples that there are
  std::vector<PlannedStep> plan_;
  data::LoaderOptions loader_;  ///< of variants that draw
  uint64_t draw_seed_ = 0;
  double bound_ = 0;  ///< C in the first step: of all groups together where there are some
  std::vector<Group> groups_;
  std::vector<at::Tensor> start_;
  std::map<bool, std::vector<ExpectedStep>> trajectories_;  ///< by is_private
};

}  // namespace moonshard::verify
