#include "viewer/data/plan_answer.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/json.h"

namespace moonshard::viewer {
namespace {

std::vector<std::string> shared_words(const PlanKnobs& knobs) {
  std::vector<std::string> words = {"plan",          "--json",
                                    "--model",       knobs.model,
                                    "--mode",        knobs.engine,
                                    "--gpu",         knobs.machine,
                                    "--gpus",        std::to_string(knobs.gpus),
                                    "--nodes",       std::to_string(knobs.nodes),
                                    "--seq-length",  std::to_string(knobs.tokens),
                                    "--optimizer",   knobs.optimizer,
                                    "--param-dtype", knobs.compute};
  if (knobs.lora_rank > 0) {
    words.emplace_back("--lora-rank");
    words.push_back(std::to_string(knobs.lora_rank));
  }
  words.insert(words.end(), knobs.more.begin(), knobs.more.end());
  return words;
}

double number_in(const Json& table, const char* key) {
  return table.contains(key) && table.at(key).is_number() ? table.at(key).get<double>() : 0;
}

std::string text_in(const Json& table, const char* key) {
  return table.contains(key) && table.at(key).is_string() ? table.at(key).get<std::string>() : "";
}

// "zero3, batch 4 x 2, block checkpointing, offload": what the search decides.
std::string words_of(const Json& options) {
  const std::string parallel = text_in(options, "parallel");
  std::string words = parallel == "fsdp" ? text_in(options, "sharding") : parallel;
  if (words == "none" || words.empty()) words = "no wrapper";
  words += fmt::format(", batch {:.0f}", number_in(options, "batch_size"));
  if (number_in(options, "grad_accum") > 1)
    words += fmt::format(" x {:.0f}", number_in(options, "grad_accum"));
  const std::string checkpointing = text_in(options, "checkpointing");
  if (!checkpointing.empty() && checkpointing != "none")
    words += ", " + checkpointing + " checkpointing";
  if (options.value("cpu_offload", false)) words += ", offload";
  return words;
}

PlannedRow row_of(const Json& table) {
  PlannedRow row;
  row.peak_bytes = number_in(table, "peak_memory_bytes");
  row.step_ms = number_in(table, "step_ms");
  if (const Json likely = table.value("likely", Json::object()); likely.contains("step_ms")) {
    row.low_ms = number_in(likely.at("step_ms"), "low");
    row.high_ms = number_in(likely.at("step_ms"), "high");
  }
  row.tokens_per_s = number_in(table, "tokens_per_s");
  row.exposed_ms = number_in(table, "exposed_ms");
  row.fits = table.value("fits", true);
  row.why = text_in(table, "why");
  if (table.contains("options")) row.words = words_of(table.at("options"));
  if (table.contains("breakdown"))
    for (const Json& owner : table.at("breakdown"))
      row.owners.emplace_back(text_in(owner, "owner"), number_in(owner, "bytes"));
  if (table.contains("phases_ms"))
    for (const auto& [phase, ms] : table.at("phases_ms").items())
      if (ms.is_number()) row.phases.emplace_back(phase, ms.get<double>());
  return row;
}

std::vector<PlannedRow> rows_in(const Json& table, const char* key) {
  std::vector<PlannedRow> rows;
  if (!table.contains(key)) return rows;
  for (const Json& row : table.at(key))
    if (row.is_object()) rows.push_back(row_of(row));
  return rows;
}

}  // namespace

std::string model_words(const PlanKnobs& knobs) {
  std::string set;
  for (size_t i = 0; i + 1 < knobs.more.size(); i += 2) {
    std::string name = knobs.more[i].substr(std::min<size_t>(2, knobs.more[i].size()));
    std::ranges::replace(name, '-', ' ');
    set += (set.empty() ? "" : ", ") + name + " " + knobs.more[i + 1];
  }
  return set.empty() ? knobs.model : knobs.model + " (" + set + ")";
}

std::vector<std::string> prediction_words(const PlanKnobs& knobs) {
  std::vector<std::string> words = shared_words(knobs);
  const auto add = [&](const char* flag, const std::string& value) {
    words.emplace_back(flag);
    words.push_back(value);
  };
  words.emplace_back("--no-search");
  const bool is_sharded = knobs.wrapper.starts_with("zero");
  add("--parallel", is_sharded ? "fsdp" : knobs.wrapper);
  if (is_sharded) add("--sharding", knobs.wrapper);
  add("--batch-size", std::to_string(knobs.batch));
  add("--grad-accum", std::to_string(knobs.micro_batches));
  add("--checkpointing", knobs.checkpointing);
  if (is_sharded) add("--cpu-offload", knobs.offload ? "true" : "false");
  return words;
}

std::vector<std::string> search_words(const PlanKnobs& knobs) {
  std::vector<std::string> words = shared_words(knobs);
  const int64_t samples = int64_t{knobs.batch} * knobs.micro_batches * knobs.gpus * knobs.nodes;
  words.emplace_back("--global-batch");
  words.push_back(std::to_string(samples));
  return words;
}

PlanAnswer plan_answer(const std::string& json) {
  const Json table = parse_json(json, "moonshard plan");
  PlanAnswer answer;
  if (table.contains("machine")) {
    answer.device = text_in(table.at("machine"), "device");
    answer.source = text_in(table.at("machine"), "source");
  }
  answer.memory_bytes = number_in(table, "memory_bytes");
  answer.ranks = static_cast<int>(std::clamp(number_in(table, "ranks"), 1.0, 1e6));
  answer.tried = static_cast<int64_t>(std::clamp(number_in(table, "tried"), 0.0, 1e12));
  if (table.contains("assumptions"))
    for (const Json& one : table.at("assumptions"))
      if (one.is_string()) answer.assumptions.push_back(one.get<std::string>());
  answer.plans = rows_in(table, "plans");
  answer.too_large = rows_in(table, "too_large");
  answer.front = rows_in(table, "front");
  return answer;
}

}  // namespace moonshard::viewer
