// A block's norms and sums as engines ask for them (block_norms.h), on a GPU: all kinds of layers
// in one call against double, and no launch of a tensor operation beside the kernels.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <deque>
#include <set>

#include "kernels/common/choice.h"
#include "runtime/privacy/block_norms.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/restored.h"

namespace moonshard {
namespace {

using privacy::Keep;
using privacy::LinearTask;
using privacy::NormMethod;

class GpuBlocks : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    at::manual_seed(17);
  }

  // Layers of 6 samples: q, k and v on one input, one by itself, and a modulation of one position.
  std::vector<LinearTask> block(NormMethod method, at::ScalarType type = at::kBFloat16) {
    const auto random = [&](int64_t positions, int64_t width) {
      return at::randn({6, positions, width}, at::kCUDA).to(type);
    };
    const at::Tensor shared = random(200, 128);
    std::vector<LinearTask> tasks;
    const auto add = [&](const at::Tensor& a, int64_t out) {
      models::Parameter& weight = weights_.emplace_back();
      weight.value = at::zeros({out, a.size(2)}, a.options());
      models::ParamLayer& layer = layers_.emplace_back();
      layer.name = "block.layer" + std::to_string(layers_.size());
      layer.weight = &weight;
      tasks.push_back({&layer, a, random(a.size(1), out).mul_(0.1), method, Keep::Inputs});
      EXPECT_TRUE(privacy::may_join(layer, a, tasks.back().g_BTo)) << layer.name;
    };
    for (const int64_t out : {128, 32, 32}) add(shared, out);
    add(random(200, 512), 128);
    add(random(1, 128), 768);
    add(random(1, 128), 3);
    return tasks;
  }

  std::deque<models::Parameter> weights_;
  std::deque<models::ParamLayer> layers_;
};

at::Tensor gradients(const LinearTask& task) {
  return at::bmm(task.g_BTo.to(at::kDouble).transpose(1, 2), task.a_BTi.to(at::kDouble));
}

void expect_norms(const LinearTask& task, const at::Tensor& squares, double below, double above) {
  const at::Tensor ratio = squares / gradients(task).flatten(1).square().sum(1);
  EXPECT_GT(ratio.min().item<double>(), 1 - below) << task.layer->name;
  EXPECT_LT(ratio.max().item<double>(), 1 + above) << task.layer->name;
}

TEST_F(GpuBlocks, NormsEqualThoseInDouble) {
  for (const auto method : {NormMethod::Ghost, NormMethod::InputLength, NormMethod::Width}) {
    const std::vector<LinearTask> tasks = block(method);
    const privacy::TaskNorms norms = privacy::norms_of(tasks);
    for (size_t k = 0; k < tasks.size(); ++k) {
      const bool one = tasks[k].g_BTo.size(1) == 1;
      expect_norms(tasks[k], norms.squares_nB[static_cast<int64_t>(k)], one ? 1e-12 : 5e-6,
                   one ? 1e-12 : 1e-4);
    }
  }
}

// As flash_bookkeeping has it on long samples: gradients where they are smaller.
TEST_F(GpuBlocks, KeepTheSmaller) {
  if (!privacy::keeps_compact(at::empty({1}, at::kCUDA))) GTEST_SKIP() << "no Hopper kernels";
  std::vector<LinearTask> tasks = block(NormMethod::Ghost);
  for (LinearTask& task : tasks) task.rows_if_smaller = true;
  privacy::keep_the_smaller(tasks);
  const privacy::TaskNorms norms = privacy::norms_of(tasks);
  for (size_t k = 0; k < tasks.size(); ++k) {
    const bool kept = k < 4, one = k >= 4;
    EXPECT_EQ(tasks[k].keep == Keep::Gradients, kept) << k;
    ASSERT_EQ(norms.kept[k].defined(), kept) << k;
    expect_norms(tasks[k], norms.squares_nB[static_cast<int64_t>(k)], one ? 1e-12 : 1e-3,
                 one ? 1e-12 : 1e-3);
    if (!kept) continue;
    const at::Tensor want = gradients(tasks[k]);
    const at::Tensor rows = kernels::restored(norms.kept[k]);
    EXPECT_LT(((rows - want).norm() / want.norm()).item<double>(), 1e-3) << k;
  }
}

TEST_F(GpuBlocks, SumsEqualThoseInDouble) {
  const at::Tensor factors = at::tensor({0.3f, 1.0f / 3, 0.0f, 1.0f, 1e-9f, 0.7f}).to(at::kCUDA);
  std::vector<LinearTask> tasks = block(NormMethod::Width);
  for (LinearTask& task : tasks) task.a_BTi[2].fill_(NAN);
  for (int64_t micro = 1; micro <= 2; ++micro) {
    privacy::add_clipped(tasks, factors);
    for (const LinearTask& task : tasks) {
      const at::Tensor rows = gradients(task) * factors.to(at::kDouble).view({6, 1, 1});
      const at::Tensor want =
          at::cat({rows.narrow(0, 0, 2), rows.narrow(0, 3, 3)}).sum(0) * static_cast<double>(micro);
      const at::Tensor& got = task.layer->weight->grad;
      // Sums of 1000 products are cut off by the tensor cores; those of one position are not.
      EXPECT_LT(((got - want).norm() / want.norm()).item<double>(),
                task.g_BTo.size(1) == 1 ? 1e-6 : 3e-5)
          << task.layer->name;
    }
  }
}

// Float32 layers of one position join as well; the others go through their rules.
TEST_F(GpuBlocks, OfOnePositionInFloat32) {
  models::Parameter weight;
  weight.value = at::zeros({70, 37}, at::kCUDA);
  models::ParamLayer layer;
  layer.name = "head";
  layer.weight = &weight;
  const at::Tensor a = at::randn({9, 37}, at::kCUDA), g = at::randn({9, 70}, at::kCUDA);
  ASSERT_TRUE(privacy::may_join(layer, a, g));
  EXPECT_FALSE(
      privacy::may_join(layer, at::randn({9, 4, 37}, at::kCUDA), at::randn({9, 4, 70}, at::kCUDA)));
  const LinearTask task{&layer, a.unsqueeze(1), g.unsqueeze(1)};
  expect_norms(task, privacy::norms_of({task}).squares_nB[0], 1e-12, 1e-12);
}

TEST_F(GpuBlocks, CrossTermOfATiedHeadEqualsDouble) {
  models::Parameter weight;
  weight.value = at::zeros({50, 64}, at::kCUDA);
  models::ParamLayer head, table;
  head.weight = table.weight = &weight;
  table.kind = models::kinds::kEmbedding;
  table.padding_id = 3;
  const auto random = [](int64_t width) {
    return at::randn({5, 90, width}, at::kCUDA).to(at::kBFloat16);
  };
  const at::Tensor a = random(64), g = random(50), e = random(64);
  const at::Tensor ids = at::randint(50, {5, 90}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  const at::Tensor got = privacy::cross_products(head, a, g, table, ids, e).cpu();
  const auto wide = [](const at::Tensor& x) { return x.cpu().to(at::kDouble); };
  const at::Tensor want =
      privacy::cross_products(head, wide(a), wide(g), table, ids.cpu(), wide(e));
  EXPECT_LT(((got - want).norm() / want.norm()).item<double>(), 1e-5);
}

// Names of tensor operations that start work on the device, while it lives.
class CountedOperations {
 public:
  CountedOperations() {
    counted().clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function)
                                       -> std::unique_ptr<at::ObserverContext> {
          static const std::set<std::string> free = {
              "aten::empty",         "aten::select",     "aten::narrow",  "aten::slice",
              "aten::as_strided",    "aten::view",       "aten::reshape", "aten::flatten",
              "aten::empty_strided", "aten::empty_like", "aten::to",      "aten::unsqueeze"};
          if (!free.contains(function.name())) counted().push_back(function.name());
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~CountedOperations() { at::removeCallback(handle_); }
  CountedOperations(const CountedOperations&) = delete;
  CountedOperations& operator=(const CountedOperations&) = delete;

  static std::vector<std::string>& counted() {
    static std::vector<std::string> names;
    return names;
  }

 private:
  at::CallbackHandle handle_;
};

TEST_F(GpuBlocks, AreKernelsAlone) {
  if (!privacy::keeps_compact(at::empty({1}, at::kCUDA))) GTEST_SKIP() << "no Hopper kernels";
  for (const auto method : {NormMethod::Ghost, NormMethod::Width}) {
    const std::vector<LinearTask> tasks = block(method);
    const at::Tensor factors = at::ones({6}, at::kCUDA);
    const CountedOperations count;
    privacy::norms_of(tasks);
    privacy::add_clipped(tasks, factors);
    std::string names;
    for (const std::string& name : CountedOperations::counted()) names += name + " ";
    EXPECT_EQ(names, "");
  }
}

}  // namespace
}  // namespace moonshard
