#include "runtime/privacy/clip_engine.h"

#include <algorithm>
#include <mutex>

#include "runtime/privacy/engines/engines.h"

namespace moonshard::privacy {
namespace {

std::vector<EngineInfo> built_in_engines() {
  const EngineMaker uniform = &make_uniform_engine;
  return {
      {"none",
       "plain training: gradients summed over the batch, no clipping, no noise",
       false,
       {"no_dp", "vanilla", "no_dp_single"},
       [](const ClipOptions&, std::shared_ptr<Clipping>) { return make_plain_engine(); }},
      {"materialize",
       "the reference: every sample's gradient is kept, then scaled and summed",
       true,
       {"materialized"},
       uniform},
      {"ghost",
       "norms from T x T Gram matrices, then a second backward pass",
       true,
       {"ghost_fsdp", "ghost_clip"},
       uniform},
      {"flash",
       "norms by tiles, nothing stored, then a second backward pass",
       true,
       {"flash_fsdp", "flash_clip"},
       uniform},
      {"bookkeeping",
       "ghost norms; one backward pass, activations and output gradients are kept",
       true,
       {"ghost_bookkeeping", "bookkeeping_fsdp"},
       uniform},
      {"flash_bookkeeping",
       "flash norms; one backward pass, activations and output gradients are kept",
       true,
       {"flash_clip_bookkeeping", "flash_bookkeeping_fsdp"},
       uniform},
      {"auto",
       "per layer the cheapest of them, within memory_budget_mb when it is given",
       true,
       {},
       &make_auto_engine},
  };
}

struct Registry {
  std::mutex mutex;
  size_t built_in;
  std::vector<EngineInfo> engines;
  Registry() : engines(built_in_engines()) {
    built_in = engines.size();
    for (EngineInfo& engine : engines) engine.built_in = true;
  }
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

std::vector<EngineInfo> engines() {
  const std::lock_guard lock(registry().mutex);
  return registry().engines;
}

void register_engine(EngineInfo engine) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  };
  MS_CHECK(!engine.name.empty() && engine.name.size() <= 60 &&
               std::all_of(engine.name.begin(), engine.name.end(), is_plain),
           "privacy.register_engine: expected a name of up to 60 letters, digits, '_' and '-', got "
           "'{}'",
           engine.name.substr(0, 60));
  MS_CHECK(engine.make != nullptr, "privacy.register_engine: expected a maker, got none");
  engine.built_in = false;
  for (size_t i = 0; i < all.engines.size(); ++i) {
    EngineInfo& known = all.engines[i];
    const bool by_alias =
        std::find(known.aliases.begin(), known.aliases.end(), engine.name) != known.aliases.end();
    if (known.name != engine.name && !by_alias) continue;
    MS_CHECK(i >= all.built_in,
             "privacy.register_engine: expected a new name, got '{}', which is built in; choose "
             "another",
             engine.name);
    known = std::move(engine);
    return;
  }
  all.engines.push_back(std::move(engine));
}

void unregister_engine(const std::string& name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (size_t i = all.built_in; i < all.engines.size(); ++i) {
    if (all.engines[i].name != name) continue;
    all.engines.erase(all.engines.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
  throw UsageError(fmt::format(
      "privacy.unregister_engine: expected an engine that was registered, got '{}'", name));
}

std::unique_ptr<ClipEngine> make_engine(const ClipOptions& options,
                                        std::shared_ptr<Clipping> clipping) {
  for (const EngineInfo& engine : engines()) {
    if (engine.name == options.mode) return engine.make(options, std::move(clipping));
  }
  throw InternalError(fmt::format("no engine '{}'", options.mode));
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const EngineInfo& engine : engines()) names.push_back(engine.name);
  return names;
}

std::map<std::string, std::string> engine_aliases() {
  std::map<std::string, std::string> aliases;
  for (const EngineInfo& engine : engines()) {
    for (const std::string& alias : engine.aliases) aliases[alias] = engine.name;
  }
  return aliases;
}

}  // namespace moonshard::privacy
