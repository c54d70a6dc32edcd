// Small trainings for tests of checkpoints, and hands that change their files.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "runtime/base/json.h"
#include "runtime/checkpoint/integrity.h"
#include "runtime/data/source.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"

namespace moonshard::checkpoint {

struct Setting {
  models::ModelOptions model;
  privacy::ClipOptions clip;
  optim::OptimizerOptions optimizer;
  sharding::ShardingOptions sharding;
};

inline Setting linear_setting() {
  Setting setting;
  setting.model.model = "linear-tiny";
  setting.model.device = "cpu";
  setting.model.hidden_dim = 6;
  setting.model.num_layers = 2;
  setting.model.seed = 11;
  setting.clip.mode = "ghost";
  setting.clip.clipping = "adaptive";
  setting.clip.quantile_noise = 4;
  setting.optimizer.optimizer = "adamw";
  setting.optimizer.lr = 0.02;
  return setting;
}

inline Setting llama_setting(const std::string& parallel = "none",
                             const std::string& sharding = "zero3") {
  Setting setting = linear_setting();
  setting.model.model = "llama3.2-tiny";
  setting.model.task = "lm";
  setting.model.hidden_dim = 24;
  setting.model.intermediate_dim = 38;
  setting.model.vocab_size = 29;
  setting.model.head_dim = 6;
  setting.model.frozen = "model.layers.0.mlp.*";
  setting.sharding.parallel = parallel;
  setting.sharding.sharding = sharding;
  return setting;
}

// What goes on exactly is compared bit by bit.
inline privacy::PrivacyOptions with_reproducible_noise() {
  privacy::PrivacyOptions options;
  options.secure = false;
  return options;
}

struct Training {
  explicit Training(const Setting& setting)
      : model(models::make_model(setting.model)),
        trainer({model,
                 setting.clip,
                 setting.optimizer,
                 std::make_unique<data::SyntheticData>(model->options(), 3, 5),
                 {},
                 setting.sharding,
                 nullptr,
                 with_reproducible_noise()}) {}

  void steps(int64_t count) {
    for (int64_t i = 0; i < count; ++i) trainer.step();
  }
  std::vector<at::Tensor> weights() {
    trainer.gather();
    std::vector<at::Tensor> all;
    for (const auto& parameter : model->parameters()) all.push_back(parameter->value.clone());
    return all;
  }

  std::shared_ptr<models::Model> model;
  train::Trainer trainer;
};

inline bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string text_of(const std::filesystem::path& path) {
  return read_text_file(path, 1 << 20);
}

/// An index with a seal of its own, as somebody who knows the format would write it.
inline std::string resealed(Json index, const std::string& key = "") {
  index.erase("sha256");
  index.erase("hmac_sha256");
  std::string text = index.dump();
  text.pop_back();
  return sealed(text + ",\n", key);
}

/// As version 1 wrote it: without sums and seal.
inline std::string of_version_1(Json index) {
  index["schema_version"] = 1;
  for (const char* key : {"files", "sha256", "hmac_sha256"}) index.erase(key);
  return index.dump();
}

}  // namespace moonshard::checkpoint
