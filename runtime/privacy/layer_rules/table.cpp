// A position table is added to every sample: its per-sample gradient is g itself.
#include "runtime/privacy/layer_rules/rules.h"

namespace moonshard::privacy {
namespace {

class TableRule : public LayerRule {
 public:
  at::Tensor per_sample(const models::ParamLayer& layer, const at::Tensor&,
                        const at::Tensor& g) const override {
    std::vector<int64_t> shape{g.size(0)};
    for (const int64_t size : layer.weight->value.sizes()) shape.push_back(size);
    return at_least_float(g).reshape(shape);
  }

  at::Tensor squares(const models::ParamLayer&, const at::Tensor&, const at::Tensor& g,
                     const NormSettings&) const override {
    return row_squares(at_least_float(g));
  }
};

}  // namespace

std::shared_ptr<const LayerRule> make_table_rule() {
  return std::make_shared<TableRule>();
}

}  // namespace moonshard::privacy
