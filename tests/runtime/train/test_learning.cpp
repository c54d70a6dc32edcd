// Every engine learns something real: which language a piece of text is in, what byte comes next,
// and what noise was added to small drawings.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "runtime/models/families/dit/dit.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"

namespace moonshard {
namespace {

std::string read_source(const std::string& path) {
  std::ifstream file(std::string(MOONSHARD_SOURCE_DIR) + "/tests/data/" + path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_GT(text.str().size(), 1000u) << path;
  return text.str();
}

// Windows of bytes; each step takes the next places of a fixed walk through the text.
at::Tensor windows(const std::string& text, int64_t count, int64_t length, int64_t step) {
  at::Tensor ids = at::empty({count, length}, at::kLong);
  for (int64_t b = 0; b < count; ++b) {
    const size_t start = static_cast<size_t>((step * count + b) * 7919 + 13) %
                         (text.size() - static_cast<size_t>(length));
    for (int64_t t = 0; t < length; ++t)
      ids[b][t] =
          static_cast<int64_t>(static_cast<unsigned char>(text[start + static_cast<size_t>(t)]));
  }
  return ids;
}

Batch which_language(int64_t step) {
  static const std::string texts[] = {read_source("english.txt"), read_source("german.txt"),
                                      read_source("lua.txt")};
  constexpr int64_t kEach = 6, kLength = 24;
  std::vector<at::Tensor> ids, labels;
  for (int64_t label = 0; label < 3; ++label) {
    ids.push_back(windows(texts[label], kEach, kLength, step));
    labels.push_back(at::full({kEach}, label, at::kLong));
  }
  Batch batch;
  batch.input_ids = at::cat(ids);
  batch.labels = at::cat(labels);
  batch.attention_mask = at::ones_like(batch.input_ids, at::kBool);
  return batch;
}

Batch next_byte(int64_t step) {
  static const std::string text = read_source("english.txt");
  const at::Tensor ids = windows(text, 12, 25, step);
  Batch batch;
  batch.input_ids = ids.narrow(1, 0, 24);
  batch.labels = ids.narrow(1, 1, 24);
  batch.attention_mask = at::ones_like(batch.input_ids, at::kBool);
  return batch;
}

// Bars: the class says at which column, the sample at which height.
Batch drawings(int64_t step) {
  constexpr int64_t kCount = 16, kSize = 8;
  at::Tensor images = at::full({kCount, 3, kSize, kSize}, -1.0f);
  at::Tensor labels = at::empty({kCount}, at::kLong);
  for (int64_t b = 0; b < kCount; ++b) {
    const int64_t label = b % 4;
    labels[b] = label;
    images[b].slice(2, 2 * label, 2 * label + 2).slice(1, (b + step) % 3).fill_(1);
  }
  Batch batch;
  batch.labels = labels;
  batch.timesteps = (at::arange(kCount, at::kLong) * 61 + step * 37).remainder(1000);
  at::manual_seed(static_cast<uint64_t>(step));
  batch.targets = at::randn_like(images);
  batch.inputs = models::add_diffusion_noise(images, batch.targets, batch.timesteps);
  return batch;
}

struct Task {
  const char* model;
  const char* task;
  Batch (*batch)(int64_t step);
  int64_t steps;
  double lr, goal;  ///< the loss must fall below goal times the first one
};

models::ModelOptions options_of(const Task& task) {
  models::ModelOptions options;
  options.model = task.model;
  options.task = task.task;
  options.device = "cpu";
  options.num_layers = 1;
  options.hidden_dim = 32;
  options.intermediate_dim = 64;
  if (std::string(task.task) == "denoise") {
    options.image_size = 8;
    options.num_classes = 4;
  } else {
    options.vocab_size = 256;
    options.head_dim = 8;
  }
  return options;
}

using Case = std::tuple<std::string, int>;
const Task kTasks[] = {{"llama3-tiny", "classify", &which_language, 150, 3e-3, 0.8},
                       {"qwen2.5-tiny", "lm", &next_byte, 60, 6e-3, 0.75},
                       {"dit-tiny", "denoise", &drawings, 60, 4e-3, 0.75}};

class Learning : public ::testing::TestWithParam<Case> {};

TEST_P(Learning, LossFallsOnARealTask) {
  const Task& task = kTasks[std::get<1>(GetParam())];
  const std::shared_ptr<models::Model> model = models::make_model(options_of(task));
  privacy::ClipOptions clip;
  clip.mode = std::get<0>(GetParam());
  clip.noise_multiplier = 0.01;
  optim::OptimizerOptions optimizer;
  optimizer.optimizer = "adamw";
  optimizer.lr = task.lr;
  train::Trainer trainer({.model = model,
                          .clip = clip,
                          .optimizer = optimizer,
                          .privacy = privacy::reproducible_noise()});
  double first = 0, last = 0;
  constexpr int64_t kAveraged = 5;
  for (int64_t step = 0; step < task.steps; ++step) {
    const double loss = trainer.step(task.batch(step)).loss;
    ASSERT_TRUE(std::isfinite(loss));
    if (step < kAveraged) first += loss / kAveraged;
    if (step >= task.steps - kAveraged) last += loss / kAveraged;
  }
  EXPECT_LT(last, task.goal * first) << "from " << first << " to " << last;
}

INSTANTIATE_TEST_SUITE_P(All, Learning,
                         ::testing::Combine(::testing::Values("none", "materialize", "ghost",
                                                              "flash", "bookkeeping",
                                                              "flash_bookkeeping", "auto"),
                                            ::testing::Range(0, 3)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" +
                                  kTasks[std::get<1>(test.param)].task;
                         });

}  // namespace
}  // namespace moonshard
