// An engine whose norms come from a function of the user's, in C++ or in a script. Clipping, sums,
// tied weights and noise stay the runtime's own.
#include "runtime/privacy/engines/engines.h"

namespace moonshard::privacy {
namespace {

class CustomEngine : public NormEngine {
 public:
  CustomEngine(std::string name, NormFunction norms, Keep keep, std::shared_ptr<Clipping> clipping)
      : NormEngine(std::move(clipping)),
        name_(std::move(name)),
        norms_(std::move(norms)),
        keep_(keep) {}
  const char* name() const override { return name_.c_str(); }

 protected:
  bool has_custom_norms() const override { return true; }
  Keep plan_keep(const models::Model&, const MicroBatch&) override { return keep_; }
  LayerPlan plan_layer(const models::ParamLayer&, const at::Tensor&, const at::Tensor&) override {
    LayerPlan plan;
    plan.keep = keep_;
    plan.custom_norm = norms_;
    return plan;
  }

 private:
  std::string name_;
  NormFunction norms_;
  Keep keep_;
};

}  // namespace

std::unique_ptr<ClipEngine> make_custom_engine(const std::string& name, NormFunction norms,
                                               Keep keep, std::shared_ptr<Clipping> clipping) {
  return std::make_unique<CustomEngine>(name, std::move(norms), keep, std::move(clipping));
}

}  // namespace moonshard::privacy
