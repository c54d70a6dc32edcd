// Engines with one plan for every layer:
//   materialize        each sample's gradient, kept        the definition the others are held to
//   ghost              norm from Gram matrices             second backward pass
//   flash              norm by tiles                       second backward pass
//   bookkeeping        norm from Gram matrices             sum from the kept (a, g)
//   flash_bookkeeping  norm by tiles                       sum from the kept (a, g), or from
//                      gradients kept in 16 bits, where a kernel keeps them and they are smaller
#include "runtime/privacy/engines/engines.h"
#include "runtime/privacy/norm_cost.h"

namespace moonshard::privacy {

bool has_small_gradient(const models::ParamLayer& layer) {
  return layer.kind == models::kinds::kRmsNorm || layer.kind == models::kinds::kLayerNorm;
}

LayerShape shape_at(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                    int64_t readers) {
  LayerShape shape = shape_of(a, g);
  shape.readers = static_cast<double>(readers);
  shape.by_kernel = may_join(layer, a, g);
  return shape;
}

namespace {

class UniformEngine : public NormEngine {
 public:
  UniformEngine(const ClipOptions& options, std::shared_ptr<Clipping> clipping)
      : NormEngine(std::move(clipping)), options_(options) {
    const std::string& mode = options_.mode;
    flash_ = mode == "flash" || mode == "flash_bookkeeping";
    keep_ = mode == "materialize"                ? Keep::Gradients
            : mode == "ghost" || mode == "flash" ? Keep::Nothing
                                                 : Keep::Inputs;
  }
  const char* name() const override { return options_.mode.c_str(); }

 protected:
  Keep plan_keep(const models::Model&, const MicroBatch&) override { return keep_; }

  LayerPlan plan_layer(const models::ParamLayer& layer, const at::Tensor& a,
                       const at::Tensor& g) override {
    LayerPlan plan;
    plan.keep = keep_ == Keep::Inputs && has_small_gradient(layer) && !is_shared(layer)
                    ? Keep::Gradients
                    : keep_;
    plan.norm.tile_size = options_.tile_size;
    plan.norm.method =
        keep_ == Keep::Gradients ? NormMethod::Materialize
        : flash_ ? choose_flash(shape_at(layer, a, g, readers(layer)), options_.flash_algorithm)
                 : NormMethod::Ghost;
    // Who names an algorithm gets it: gradients that are kept need none.
    plan.compact_if_smaller = flash_ && keep_ == Keep::Inputs && options_.flash_algorithm == "auto";
    return plan;
  }

 private:
  ClipOptions options_;
  bool flash_ = false;
  Keep keep_ = Keep::Inputs;
};

}  // namespace

std::unique_ptr<ClipEngine> make_uniform_engine(const ClipOptions& options,
                                                std::shared_ptr<Clipping> clipping) {
  return std::make_unique<UniformEngine>(options, std::move(clipping));
}

}  // namespace moonshard::privacy
