#include "runtime/models/registry.h"

#include <algorithm>
#include <deque>

#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/globs.h"
#include "runtime/core/random_words.h"
#include "runtime/models/model_options.h"

namespace moonshard::models {
namespace {

// Resolved options of every family hold this many labels, also of those that have none: checkpoints
// and the ids of points depend on it.
constexpr int64_t kRecordedLabels = 3;

struct Registry {
  std::vector<std::unique_ptr<Family>> families;
  std::deque<Preset> presets;  // a deque: references stay valid when a family is added

  Registry() {
    for (std::unique_ptr<Family>& family : Families::make_all()) add(std::move(family));
  }

  void add(std::unique_ptr<Family> family) {
    std::vector<Preset> list = family->presets();
    for (Preset& preset : list) {
      MS_CHECK(find(preset.sizes.model) == nullptr,
               "models: expected a new name for a preset of family {}, got '{}', which is taken",
               family->name(), preset.sizes.model);
      preset.family = family.get();
    }
    std::move(list.begin(), list.end(), std::back_inserter(presets));
    families.push_back(std::move(family));
  }

  const Preset* find(const std::string& name) const {
    const auto found = std::find_if(presets.begin(), presets.end(), [&](const Preset& preset) {
      return preset.sizes.model == name;
    });
    return found == presets.end() ? nullptr : &*found;
  }
};

Registry& registry() {
  static Registry all;
  return all;
}

// ---- names ------------------------------------------------------------------------------------

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// "Organisation/Model-Instruct" -> "model"; "" for what is no such name.
std::string bare_hub_name(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == 0 || slash != name.rfind('/') || name.starts_with(".")) return "";
  std::string text = lower(slash == std::string::npos ? name : name.substr(slash + 1));
  for (const std::string suffix : {"-instruct", "-chat"})
    if (text.ends_with(suffix)) text.erase(text.size() - suffix.size());
  return text;
}

const Preset* look_up(const std::string& name) {
  for (const std::string& known : {name, lower(name)}) {
    if (const Preset* preset = registry().find(known)) return preset;
  }
  const std::string bare = bare_hub_name(name);
  for (const auto& family : registry().families) {
    if (bare.empty()) break;
    if (const Preset* preset = registry().find(family->preset_of_hub_name(bare))) return preset;
  }
  return nullptr;
}

// ---- resolving --------------------------------------------------------------------------------

void fill_from_preset(ModelOptions& o, const ModelOptions& preset) {
  const ModelOptions unset;
  for (const Option& option : model_schema().options()) {
    if (option.read(&o) == option.read(&unset)) option.write(&o, option.read(&preset));
  }
  o.model = preset.model;
  if (o.param_dtype == "auto") o.param_dtype = o.dtype;
  if (o.num_labels == 0) o.num_labels = kRecordedLabels;
}

void refuse_options_of_others(const ModelOptions& o, const Family& family) {
  const std::vector<std::string>& own = family.description().options;
  std::vector<std::string> used = options_of_every_family();
  used.insert(used.end(), own.begin(), own.end());
  ModelOptions recorded;
  recorded.num_labels = kRecordedLabels;
  model_schema().refuse_unused(
      &o, &recorded, used,
      fmt::format("model {} (family {}: takes {})", o.model, family.name(),
                  fmt::join(own.empty() ? options_of_every_family() : own, ", ")));
}

void check_sizes(const ModelOptions& o, const Family& family) {
  std::vector<std::string> missing;
  for (const std::string& name : family.description().sizes) {
    if (model_schema().find(name)->read(&o).get<int64_t>() <= 0) missing.push_back(name);
  }
  MS_CHECK(missing.empty(),
           "model '{}': expected sizes, got none for {}; give them, take a preset ('moonshard "
           "models' lists them), or name weights whose folder has a config.json",
           o.model, fmt::join(missing, ", "));
}

void check_task(const ModelOptions& o, const Family& family) {
  std::vector<std::string> names;
  for (const Task& task : family.description().tasks) names.push_back(task.name);
  MS_CHECK(std::find(names.begin(), names.end(), o.task) != names.end(),
           "model '{}': expected task {}, got '{}'", o.model, fmt::join(names, " or "), o.task);
}

// A glob without effect is a misspelt one.
void check_globs(const Model& model, const std::string& list, const char* option) {
  for (const std::string& glob : globs_of(list)) {
    const auto& all = model.parameters();
    const bool is_found = std::any_of(all.begin(), all.end(), [&](const auto& parameter) {
      return matches_any({glob}, parameter->name);
    });
    MS_CHECK(is_found,
             "model '{}': option '{}': expected globs that match parameters, got '{}'; their names "
             "look like '{}'",
             model.options().model, option, glob, all.empty() ? "" : all.front()->name);
  }
}

// What the files of a base model lack was never trained: an adapter's run trains it as a whole.
void complete_lora(ModelOptions& o, const Family& family) {
  o.lora_dropout = std::max(0.0, o.lora_dropout);
  MS_CHECK(o.lora_rank > 0 || (o.lora_alpha == 0 && o.lora_targets.empty() && o.lora_dropout == 0),
           "model '{}': expected lora_rank above 0 beside lora_alpha, lora_targets and "
           "lora_dropout, got none",
           o.model);
  if (o.lora_rank == 0) return;
  if (o.lora_alpha == 0) o.lora_alpha = 2 * static_cast<double>(o.lora_rank);
  if (o.trained.empty() && o.task == "classify")
    o.trained = fmt::format("{}", fmt::join(family.weight_names().optional, ","));
}

}  // namespace

const std::vector<std::unique_ptr<Family>>& families() {
  return registry().families;
}

const Family& register_family(std::unique_ptr<Family> family) {
  const Family& added = *family;
  registry().add(std::move(family));
  return added;
}

void remove_family(const Family& family) {
  Registry& all = registry();
  std::erase_if(all.presets, [&](const Preset& preset) { return preset.family == &family; });
  std::erase_if(all.families, [&](const auto& known) { return known.get() == &family; });
}

const Family& family_of(const ModelOptions& options) {
  if (const Preset* preset = look_up(options.model)) return *preset->family;
  for (const auto& family : families()) {
    for (const Task& task : family->description().tasks)
      if (task.name == options.task) return *family;
  }
  return *find_preset(options.model).family;
}

const Task* find_task(const std::string& name) {
  for (const auto& family : families()) {
    for (const Task& task : family->description().tasks)
      if (task.name == name) return &task;
  }
  return nullptr;
}

std::vector<Preset> presets() {
  std::vector<Preset> list;
  for (const Preset& preset : registry().presets)
    if (preset.has_sizes) list.push_back(preset);
  return list;
}

std::string hub_suggestion(const std::string& name) {
  std::vector<std::string> known, names;
  for (const Preset& preset : presets()) {
    const std::string& own = preset.sizes.model;
    names.push_back(own);
    if (hub_name(own) != own) known.push_back(hub_name(own) + " (" + own + ")");
  }
  // Organisation and "-Instruct" would hide what is near.
  const std::string bare = bare_hub_name(name);
  std::string nearest;
  for (const auto& family : registry().families) {
    if (!nearest.empty() || bare.empty()) break;
    nearest = nearest_name(family->preset_of_hub_name(bare), names);
  }
  return fmt::format("models of the Hub that need no files, as their sizes are known: {}{}",
                     fmt::join(known, ", "),
                     nearest.empty() ? "" : "; did you mean '" + hub_name(nearest) + "'?");
}

std::string hub_name(const std::string& preset) {
  for (const auto& family : registry().families) {
    const std::string name = family->hub_name_of_preset(preset);
    if (!name.empty()) return name;
  }
  return preset;
}

bool knows_model(const std::string& name) {
  return look_up(name) != nullptr;
}

const Preset& find_preset(const std::string& name) {
  if (const Preset* preset = look_up(name)) return *preset;
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.sizes.model);
  throw UsageError(fmt::format("model: expected one of {}, got '{}'{}", fmt::join(names, ", "),
                               name, did_you_mean(lower(name), names)));
}

ModelOptions resolve_model_options(const ModelOptions& options) {
  const Preset& preset = find_preset(options.model);
  ModelOptions o = options;
  fill_from_preset(o, preset.sizes);
  refuse_options_of_others(o, *preset.family);
  check_sizes(o, *preset.family);
  preset.family->complete(o, options);
  complete_lora(o, *preset.family);
  return o;
}

int64_t tokens_per_sample(const ModelOptions& resolved, int64_t seq_length) {
  return family_of(resolved).tokens_per_sample(resolved, seq_length);
}

std::unique_ptr<Model> make_model(const ModelOptions& options) {
  ModelOptions resolved = resolve_model_options(options);
  if (resolved.seed < 0) {
    resolved.seed = drawn_seed();
    resolved.seed_is_drawn = true;
  }
  const Family& family = family_of(resolved);
  check_task(resolved, family);
  auto model = family.build(resolved);
  model->add_adapters();
  check_globs(*model, resolved.frozen, "frozen");
  check_globs(*model, resolved.trained, "trained");
  return model;
}

bool Family::takes(const std::string& option) const {
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), option) != names.end();
  };
  return has(options_of_every_family()) || has(description_.options);
}

void complete_head_dim(ModelOptions& o, int64_t unit) {
  if (o.head_dim != 0) return;
  MS_CHECK(o.hidden_dim % (o.num_heads * unit) == 0,
           "model '{}': expected hidden_dim = num_heads x {} head size, got {} and {} heads",
           o.model, unit == 2 ? "an even" : "a", o.hidden_dim, o.num_heads);
  o.head_dim = o.hidden_dim / o.num_heads;
}

}  // namespace moonshard::models
