// What `moonshard plan --json` said, and the question that it answers: plain structs for the plan
// panel.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moonshard::viewer {

/// The knobs of the plan panel.
struct PlanKnobs {
  std::string model = "llama3.1-8b", engine = "bookkeeping", machine = "h200";
  std::string wrapper = "zero3";  ///< none, ddp, zero2, zero3
  std::string checkpointing = "none", optimizer = "adamw";
  std::string compute = "bfloat16";  ///< dtype of the computation (param_dtype)
  int gpus = 8, nodes = 1;
  int batch = 2, micro_batches = 1, tokens = 1024;
  int lora_rank = 0;  ///< 0: all parameters are trained
  /// Words for what has no knob: "--task", "lm", "--num-layers", "8".
  std::vector<std::string> more{};
  bool offload = false;
  bool operator==(const PlanKnobs&) const = default;
};

/// The model, for titles: "llama3.1-8b (task classify, num layers 5)".
std::string model_words(const PlanKnobs& knobs);
/// Words of `moonshard plan` that predict the knobs as they stand.
std::vector<std::string> prediction_words(const PlanKnobs& knobs);
/// And of one that searches for others with the same model, machine, engine and samples per step.
std::vector<std::string> search_words(const PlanKnobs& knobs);

struct PlannedRow {
  std::string words;  ///< what it sets: "zero3, batch 4 x 2, block checkpointing"
  double peak_bytes = 0, step_ms = 0, tokens_per_s = 0, exposed_ms = 0;
  double low_ms = 0, high_ms = 0;  ///< 90 % range of steps like it that were measured; 0: none
  std::vector<std::pair<std::string, double>> owners;  ///< bytes
  std::vector<std::pair<std::string, double>> phases;  ///< ms
  bool fits = true;
  std::string why;  ///< it does not
};

struct PlanAnswer {
  std::string device, source;
  double memory_bytes = 0;  ///< that a rank may use
  int ranks = 1;
  int64_t tried = 0;
  std::vector<std::string> assumptions;
  std::vector<PlannedRow> plans, too_large, front;
};

/// Throws IoError where the text is no such answer.
PlanAnswer plan_answer(const std::string& json);

}  // namespace moonshard::viewer
