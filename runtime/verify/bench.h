// One model, batch and reference, which all engines are compared with.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/verify/cases.h"
#include "runtime/verify/reference.h"
#include "runtime/verify/verify.h"

namespace moonshard::verify {

class Bench {
 public:
  Bench(const VerifyOptions& options, const Subject& subject, const Variant& variant,
        const Format& format, std::shared_ptr<comm::World> world);
  ~Bench();

  std::vector<Cell> run(const std::string& engine, const Observer& observer);

 private:
  struct Worst;
  using WorstByCase = std::map<std::string, Worst>;
  /// What a step must find, and leave behind.
  struct ExpectedStep {
    double bound = 0, bound_after = 0;
    Expected clipping;                           ///< of private engines
    std::map<std::string, at::Tensor> gradient;  ///< that the optimizer is given
    std::vector<at::Tensor> weights;             ///< afterwards, by parameter, double
  };

  std::string case_of(const Group& group) const;
  void restore_start();
  PerSample reference_gradients(const Batch& batch);
  void choose_bound(const PerSample& gradients);
  const std::vector<ExpectedStep>& trajectory(bool is_private);
  at::Tensor expected_gradient(const std::string& name, const PerSample& gradients,
                               const ExpectedStep& step, size_t index, bool is_private) const;
  void compare(const std::string& engine, WorstByCase& worst, const Observer& observer);
  void compare_norms(const ExpectedStep& want, const train::StepReport& report,
                     WorstByCase& worst) const;
  void compare_gathered_norms(const ExpectedStep& want, const train::StepReport& report,
                              WorstByCase& worst) const;
  void compare_gradients(const ExpectedStep& want, const std::map<std::string, at::Tensor>& used,
                         WorstByCase& worst) const;
  void compare_weights(const ExpectedStep& want, WorstByCase& worst) const;
  void merge_over_ranks(WorstByCase& worst) const;
  void show(const ExpectedStep& want, const train::StepReport& report, const std::string& engine,
            const Observer& observer) const;
  at::Tensor own_samples(const at::Tensor& of_all) const;

  Subject subject_;
  Variant variant_;
  Format format_;
  std::shared_ptr<comm::World> world_;
  sharding::ShardingOptions sharding_;
  std::shared_ptr<privacy::StepHooks> hooks_;
  privacy::ClipOptions clip_;
  train::StepOptions step_;
  size_t num_steps_ = 1;
  std::shared_ptr<models::Model> model_;
  Batch batch_;                    ///< of all ranks
  int64_t first_ = 0, count_ = 0;  ///< this rank's samples of it
  std::vector<Group> groups_;
  std::vector<at::Tensor> start_;
  std::map<bool, std::vector<ExpectedStep>> trajectories_;  ///< by is_private
};

}  // namespace moonshard::verify
