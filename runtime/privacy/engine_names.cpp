#include "runtime/privacy/engine_names.h"

#include <algorithm>
#include <cctype>
#include <mutex>

#include "runtime/base/check.h"

namespace moonshard::privacy {
namespace {

std::vector<EngineDescription> built_in_descriptions() {
  return {
      {"none",
       "plain training: gradients summed over the batch, no clipping, no noise",
       false,
       {"no_dp", "vanilla", "no_dp_single"},
       true},
      {"materialize",
       "the reference: every sample's gradient is kept, then scaled and summed",
       true,
       {"materialized"},
       true},
      {"ghost",
       "norms from T x T Gram matrices, then a second backward pass",
       true,
       {"ghost_fsdp", "ghost_clip"},
       true},
      {"flash",
       "norms by tiles, nothing stored, then a second backward pass",
       true,
       {"flash_fsdp", "flash_clip"},
       true},
      {"bookkeeping",
       "ghost norms; one backward pass, activations and output gradients are kept",
       true,
       {"ghost_bookkeeping", "bookkeeping_fsdp"},
       true},
      {"flash_bookkeeping",
       "flash norms; one backward pass, activations and output gradients are kept, on a GPU each "
       "sample's gradient where it is smaller",
       true,
       {"flash_clip_bookkeeping", "flash_bookkeeping_fsdp"},
       true},
      {"auto",
       "per layer the cheapest of them, within memory_budget_mb when it is given",
       true,
       {},
       true},
  };
}

struct NameRegistry {
  std::mutex mutex;
  std::vector<EngineDescription> engines = built_in_descriptions();
};

NameRegistry& name_registry() {
  static NameRegistry instance;
  return instance;
}

bool is_called(const EngineDescription& engine, const std::string& word) {
  return engine.name == word ||
         std::find(engine.aliases.begin(), engine.aliases.end(), word) != engine.aliases.end();
}

}  // namespace

std::vector<EngineDescription> engine_descriptions() {
  const std::lock_guard lock(name_registry().mutex);
  return name_registry().engines;
}

void register_engine_name(EngineDescription engine) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  };
  MS_CHECK(!engine.name.empty() && engine.name.size() <= 60 &&
               std::all_of(engine.name.begin(), engine.name.end(), is_plain),
           "privacy.register_engine: expected a name of up to 60 letters, digits, '_' and '-', got "
           "'{}'",
           engine.name.substr(0, 60));
  engine.built_in = false;
  NameRegistry& all = name_registry();
  const std::lock_guard lock(all.mutex);
  for (EngineDescription& known : all.engines) {
    if (!is_called(known, engine.name)) continue;
    MS_CHECK(!known.built_in,
             "privacy.register_engine: expected a new name, got '{}', which is built in; choose "
             "another",
             engine.name);
    known = std::move(engine);
    return;
  }
  all.engines.push_back(std::move(engine));
}

void unregister_engine_name(const std::string& name) {
  NameRegistry& all = name_registry();
  const std::lock_guard lock(all.mutex);
  const auto removed = std::erase_if(all.engines, [&](const EngineDescription& engine) {
    return !engine.built_in && engine.name == name;
  });
  MS_CHECK(removed == 1,
           "privacy.unregister_engine: expected an engine that was registered, got '{}'", name);
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const EngineDescription& engine : engine_descriptions()) names.push_back(engine.name);
  return names;
}

std::map<std::string, std::string> engine_aliases() {
  std::map<std::string, std::string> aliases;
  for (const EngineDescription& engine : engine_descriptions()) {
    for (const std::string& alias : engine.aliases) aliases[alias] = engine.name;
  }
  return aliases;
}

std::string canonical_engine(const std::string& word) {
  for (const EngineDescription& engine : engine_descriptions()) {
    if (is_called(engine, word)) return engine.name;
  }
  return word;
}

}  // namespace moonshard::privacy
