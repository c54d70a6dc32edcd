#include "runtime/analysis/savings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <fmt/format.h>

namespace moonshard::analysis {
namespace {

constexpr double kWorthSaying = 0.01;  // of all that was held

class Savings {
 public:
  explicit Savings(const HeldMemory& held) : held_(held) {
    for (const records::OwnedBytes& row : held.owners)
      if (!std::isnan(row.bytes)) bytes_[row.owner] += row.bytes;
  }

  std::vector<ProposedChange> all() {
    add_micro_batches();
    add_checkpointing();
    add_head_chunk();
    add_engine();
    add_sharding();
    add_offload();
    add_precision();
    add_adapters();
    add_length();
    return std::move(list_);
  }

 private:
  double of(std::initializer_list<const char*> owners) const {
    double sum = 0;
    for (const char* owner : owners) {
      const auto found = bytes_.find(owner);
      if (found != bytes_.end()) sum += found->second;
    }
    return sum;
  }
  std::string text(const char* option) const { return string_or(held_.options, option, ""); }
  double number(const char* option, double otherwise = 0) const {
    return number_or(held_.options, option, otherwise);
  }
  bool flag(const char* option) const {
    const auto found = held_.options.find(option);
    return found != held_.options.end() && found->is_boolean() && found->get<bool>();
  }
  // Named by its options where it needs no other ranks.
  void add(Json options, double bytes, std::string reason) {
    std::string change;
    for (const auto& [name, value] : options.items())
      change += fmt::format("{}{} = {}", change.empty() ? "" : ", ", name,
                            value.is_string() ? value.get<std::string>() : one_line(value));
    add_named(std::move(change), std::move(options), 0, bytes, std::move(reason));
  }
  void add_named(std::string change, Json options, double ranks, double bytes, std::string reason) {
    list_.push_back({{std::move(change), std::floor(std::max(bytes, 0.0)), std::move(reason)},
                     std::move(options),
                     ranks});
  }

  // What belongs to the samples of a micro-batch and grows with their number.
  double per_sample() const {
    return of({"activations", "output_gradients", "engine_kept", "norm_samples", "temporaries_ggt",
               "temporaries_aat", "engine_temporaries", "data"});
  }
  // What lasts from step to step, and the gradients.
  double states() const { return of({"parameters", "gradients", "optimizer_state"}); }

  void add_micro_batches() {
    const double batch = number("batch_size"), accum = number("grad_accum", 1);
    if (batch < 2) return;
    const double smaller = std::ceil(batch / 2);
    add({{"batch_size", static_cast<int64_t>(smaller)},
         {"grad_accum", static_cast<int64_t>(2 * accum)}},
        per_sample() * (1 - smaller / batch),
        "micro-batches of half the samples, as many samples in a step");
  }

  void add_checkpointing() {
    const double layers = number("num_layers");
    if (text("checkpointing") != "none" || layers < 2) return;
    const double activations = of({"activations"});
    const double size =
        text("param_dtype") == "float32" || text("param_dtype") == "float64" ? 4 : 2;
    const double inputs =
        layers * number("batch_size") * number("seq_length", 1) * number("hidden_dim") * size;
    add({{"checkpointing", "block"}}, activations - inputs - activations / layers,
        "of the activations one input per block stays, and one block's insides");
  }

  // Scores of an eighth of the positions stay; engines that keep (a, g) keep rows of the head.
  void add_head_chunk() {
    const double batch = number("batch_size"), length = number("seq_length"),
                 vocabulary = number("vocab_size");
    const double chunk = std::max(256.0, std::ceil(length / 8));
    if (text("task") != "lm" || number("head_chunk") > 0 || length <= chunk) return;
    const bool wide = text("param_dtype") == "float32" || text("param_dtype") == "float64";
    const std::string mode = text("mode");
    const bool keeps = mode != "none" && mode != "ghost" && mode != "flash";
    add({{"head_chunk", static_cast<int64_t>(chunk)}},
        vocabulary * ((batch * length - chunk) * (wide ? 4 : 2) -
                      (keeps ? batch * number("hidden_dim") * 4 : 0)),
        "scores of so many positions of a sample exist at a time, made again in backward");
  }

  void add_engine() {
    const std::string mode = text("mode");
    if (mode == "none" || mode == "flash") return;
    const double kept = of({"engine_kept"});
    const double gram = of({"temporaries_ggt", "temporaries_aat"});
    add({{"mode", "flash"}}, kept + gram,
        gram > kept
            ? "Gram matrices of ghost norms are never stored"
            : "the engine keeps nothing from layer to layer; a second backward pass instead");
  }

  void add_sharding() {
    const std::string parallel = text("parallel");
    if (parallel != "fsdp") {
      const double ranks = std::max(held_.ranks, 2.0);
      add_named(fmt::format("parallel = fsdp on {:.0f} ranks", ranks), {{"parallel", "fsdp"}},
                ranks, states() * (1 - 1 / ranks),
                "parameters, gradients and optimizer state in parts");
      return;
    }
    if (text("sharding") != "zero3") {
      const double units = std::max(number("num_layers"), 1.0);
      add({{"sharding", "zero3"}}, of({"gathered_parameters"}) * std::max(0.0, 1 - 3 / units),
          "at most three units are whole at once");
    }
    if (!flag("cpu_offload"))
      add_named(fmt::format("{:.0f} ranks instead of {:.0f}", 2 * held_.ranks, held_.ranks),
                Json::object(), 2 * held_.ranks, states() / 2,
                "each rank's part of parameters, gradients and optimizer state is half as large");
  }

  void add_offload() {
    if (text("parallel") != "fsdp" || flag("cpu_offload") || !text("device").starts_with("cuda"))
      return;
    add({{"cpu_offload", true}}, states(),
        "parameters, gradients and optimizer state are in host memory; the update runs there");
  }

  void add_precision() {
    if (text("param_dtype") != "float32" || !text("device").starts_with("cuda")) return;
    add({{"param_dtype", "bfloat16"}},
        of({"activations", "output_gradients", "engine_kept", "gathered_parameters"}) / 2,
        "computation in 16 bits; weights stay in float32");
  }

  // Where weights, gradients and states are most of it, smaller batches help little.
  void add_adapters() {
    double sum = 0;
    for (const auto& [owner, bytes] : bytes_) sum += bytes;
    const std::string task = text("task");
    if ((task != "lm" && task != "classify") || number("lora_rank") > 0 || states() < sum / 2)
      return;
    const bool halves = text("dtype") == "float32";
    Json options{{"lora_rank", 16}};
    if (halves) options["dtype"] = options["param_dtype"] = "bfloat16";  // as auto follows dtype
    add_named(halves ? "lora_rank = 16, dtype = bfloat16" : "lora_rank = 16", std::move(options), 0,
              of({"gradients", "optimizer_state"}) + (halves ? of({"parameters"}) / 2 : 0),
              "adapters alone are trained, on weights that stay as they are: another experiment");
  }

  void add_length() {
    const std::string task = text("task");
    const double length = number("seq_length");
    if ((task != "lm" && task != "classify") || length < 2) return;
    add({{"seq_length", static_cast<int64_t>(std::floor(length / 2))}},
        of({"activations", "output_gradients", "engine_kept", "data"}) / 2 +
            of({"temporaries_ggt", "temporaries_aat"}) * 3 / 4,
        "half the tokens: another experiment, where the length may change");
  }

  const HeldMemory& held_;
  std::map<std::string, double> bytes_;
  std::vector<ProposedChange> list_;
};

}  // namespace

std::vector<ProposedChange> proposed_changes(const HeldMemory& held) {
  return Savings(held).all();
}

std::vector<records::Saving> memory_savings(const HeldMemory& held) {
  double sum = 0;
  for (const records::OwnedBytes& row : held.owners)
    if (!std::isnan(row.bytes)) sum += row.bytes;
  std::vector<records::Saving> worth_saying;
  for (ProposedChange& change : proposed_changes(held))
    if (change.saving.bytes > 0 && change.saving.bytes >= kWorthSaying * sum)
      worth_saying.push_back(std::move(change.saving));
  std::stable_sort(worth_saying.begin(), worth_saying.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return worth_saying;
}

}  // namespace moonshard::analysis
