// The fused forms of layers against their plain forms, by the operations' references: whether the
// graph around the kernels is right can be seen without a GPU.
#include <gtest/gtest.h>

#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "runtime/data/source.h"
#include "runtime/models/blocks/attention.h"
#include "runtime/models/blocks/checkpoint.h"
#include "runtime/models/blocks/param_ops.h"
#include "runtime/models/registry.h"

namespace moonshard {
namespace {

using models::kinds::kEmbedding;
using models::kinds::kLayerNorm;
using models::kinds::kPositionTable;
using models::kinds::kRmsNorm;

// Per-sample gradients of every layer's weight, and of its bias, by plain formulas; rows where it
// says that it takes them. What is handed over is kept until the pass is over, as engines do: who
// writes into it on the way back is found out. Two passes must give the same.
class Collector : public models::GradientConsumer {
 public:
  explicit Collector(bool rows) : rows_(rows) {}

  void consume(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) override {
    EXPECT_FALSE(a.defined() && a.requires_grad())
        << layer.name
        << ": its graph would hold what was computed before, for as long as an engine keeps it";
    kept_.push_back({&layer, a, g});
  }
  void end_pass() {
    for (const auto& [layer, a, g] : kept_) evaluate(*layer, a, g);
    kept_.clear();
  }
  bool takes_rows(const models::ParamLayer&) const override { return rows_; }
  void consume_rows(const models::ParamLayer& layer, const at::Tensor& weight_rows,
                    const at::Tensor& bias_rows) override {
    EXPECT_TRUE(rows_);
    keep(layer.name, weight_rows.to(at::kDouble));
    if (bias_rows.defined()) keep(layer.name + " bias", bias_rows.to(at::kDouble));
    ++num_rows;
  }

  std::map<std::string, at::Tensor> found;
  int num_rows = 0;

 private:
  struct Kept {
    const models::ParamLayer* layer;
    at::Tensor a, g;
  };
  void evaluate(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
    const auto positions = [](const at::Tensor& x) {
      return x.to(at::kDouble).reshape({x.size(0), -1, x.size(-1)});
    };
    if (layer.kind == kRmsNorm || layer.kind == kLayerNorm) {
      keep(layer.name, (positions(a) * positions(g)).sum(1));
      if (layer.bias != nullptr) keep(layer.name + " bias", positions(g).sum(1));
    } else if (layer.kind == kEmbedding) {
      keep(layer.name, positions(g));
    } else if (layer.kind == kPositionTable) {
      keep(layer.name, g.to(at::kDouble));
    } else {
      keep(layer.name, at::matmul(positions(g).transpose(1, 2), positions(a)));
      keep(layer.name + " bias", positions(g).sum(1));
    }
  }
  void keep(const std::string& name, const at::Tensor& value) {
    const auto [place, fresh] = found.emplace(name, value);
    EXPECT_TRUE(fresh || at::equal(place->second, value)) << name;
  }
  std::vector<Kept> kept_;
  bool rows_;
};

struct Outcome {
  at::Tensor losses;
  std::map<std::string, at::Tensor> gradients;
  int num_rows = 0;
};

Outcome outcome_of(const models::ModelOptions& options, bool rows, bool twice) {
  const auto model = models::make_model(options);
  // Off zero: at their start some of DiT's layers give nothing back.
  at::manual_seed(3);
  for (const auto& parameter : model->parameters())
    parameter->value.add_(at::randn_like(parameter->value), 0.05);
  Batch batch = data::SyntheticData(model->options(), 3, 11).next();
  if (model->options().task == "classify") batch.attention_mask[1].slice(0, 6).fill_(false);
  Collector collector(rows);
  model->seam().consumer = &collector;
  const at::Tensor losses = model->losses(batch);
  for (int pass = twice ? 0 : 1; pass < 2; ++pass) {
    torch::autograd::grad({losses.sum()}, {model->seam().anchor}, {}, /*retain_graph=*/pass == 0,
                          false, true);
    collector.end_pass();
  }
  return {losses.detach(), collector.found, collector.num_rows};
}

class FusedGraph : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(FusedGraph, GivesWhatThePlainOneGives) {
  const auto [name, task] = GetParam();
  models::ModelOptions options;
  options.model = name;
  options.task = task;
  options.device = "cpu";
  options.seed = 5;
  for (const auto& [dtype, tolerance] :
       std::vector<std::pair<std::string, double>>{{"float64", 1e-11}, {"float32", 2e-5}}) {
    for (const char* checkpointing : {"none", "block", "keep_attention"}) {
      for (const char* attention : {"flash", "standard"}) {
        options.dtype = dtype;
        options.attention = attention;
        options.checkpointing = checkpointing;
        options.checkpoint_every = 2;
        const Outcome want = outcome_of(options, false, false);
        for (const bool rows : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {} {} rows {}", dtype, checkpointing, attention, rows));
          const models::FusedByReferences fused;
          const Outcome got = outcome_of(options, rows, /*twice=*/rows);
          const auto difference = [](const at::Tensor& a, const at::Tensor& b) {
            return ((a - b).norm() / (b.norm() + 1e-30)).item<double>();
          };
          EXPECT_LT(difference(got.losses, want.losses), tolerance);
          ASSERT_EQ(got.gradients.size(), want.gradients.size());
          for (const auto& [layer, gradient] : want.gradients) {
            ASSERT_TRUE(got.gradients.contains(layer)) << layer;
            EXPECT_LT(difference(got.gradients.at(layer), gradient), tolerance) << layer;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, FusedGraph,
    ::testing::Values(std::tuple("llama3-tiny", "classify"), std::tuple("llama3.2-tiny", "lm"),
                      std::tuple("qwen2.5-tiny", "lm"), std::tuple("gemma2-tiny", "lm"),
                      std::tuple("gemma3-tiny", "lm"), std::tuple("vaultgemma-tiny", "classify"),
                      std::tuple("dit-tiny", "denoise"), std::tuple("dit-xl-tiny", "denoise")));

TEST(KeptAttention, IsFreedWithItsBlockAndNotWithTheWholeGraph) {
  models::ModelOptions options;
  options.model = "llama3.2-tiny";
  options.device = "cpu";
  const auto model = models::make_model(options);
  std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> kept;
  const auto block = [&](const at::Tensor& x, const at::Tensor&) {
    const at::Tensor heads = x.unflatten(2, {2, 8}).transpose(1, 2);
    const at::Tensor y =
        models::causal_attention(heads, heads, heads, models::AttentionKind::Flash, {});
    if (!kept) kept.emplace(y.getIntrusivePtr());
    return 2 * y.transpose(1, 2).flatten(2);  // a view would hold it
  };
  const at::Tensor x = at::randn({2, 6, 16}).requires_grad_(true);
  const at::Tensor y = models::checkpointed(model->seam(), models::Recompute::AllButAttention,
                                            /*trains=*/true, block, x);
  EXPECT_FALSE(kept->expired());
  const auto pass = [&](bool again) {
    return torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/again, false, true)[0];
  };
  const at::Tensor first = pass(true);
  EXPECT_FALSE(kept->expired());
  EXPECT_TRUE(at::equal(first, pass(false)));
  EXPECT_TRUE(kept->expired());
}

TEST(FusedForms, NormsHandOverRowsWhereTheyAreTaken) {
  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.task = "lm";
  options.dtype = "float64";
  options.device = "cpu";
  const models::FusedByReferences fused;
  EXPECT_EQ(outcome_of(options, true, false).num_rows, 2 * 2 + 1);
  EXPECT_EQ(outcome_of(options, false, false).num_rows, 0);
  options.frozen = "model.norm.*";
  EXPECT_EQ(outcome_of(options, true, false).num_rows, 2 * 2);
}

}  // namespace
}  // namespace moonshard
