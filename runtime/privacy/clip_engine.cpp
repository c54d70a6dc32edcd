#include "runtime/privacy/clip_engine.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "runtime/base/check.h"
#include "runtime/privacy/engines/engines.h"

namespace moonshard::privacy {
namespace {

// Makers of engines from outside, by name; engine_names.h has their descriptions.
struct MakerRegistry {
  std::mutex mutex;
  std::map<std::string, EngineMaker> makers;
};

MakerRegistry& maker_registry() {
  static MakerRegistry instance;
  return instance;
}

EngineMaker registered_maker(const std::string& name) {
  const std::lock_guard lock(maker_registry().mutex);
  const auto found = maker_registry().makers.find(name);
  return found != maker_registry().makers.end() ? found->second : nullptr;
}

}  // namespace

void register_engine(const EngineDescription& description, EngineMaker make) {
  MS_CHECK(make != nullptr, "privacy.register_engine: expected a maker, got none");
  const std::lock_guard lock(maker_registry().mutex);
  register_engine_name(description);
  maker_registry().makers[description.name] = std::move(make);
}

void unregister_engine(const std::string& name) {
  const std::lock_guard lock(maker_registry().mutex);
  unregister_engine_name(name);
  maker_registry().makers.erase(name);
}

std::unique_ptr<ClipEngine> make_engine(const ClipOptions& options,
                                        std::shared_ptr<Clipping> clipping) {
  if (options.mode == "none") return make_plain_engine();
  if (options.mode == "auto") return make_auto_engine(options, std::move(clipping));
  if (const EngineMaker make = registered_maker(options.mode))
    return make(options, std::move(clipping));
  const std::vector<std::string> known = engine_names();
  MS_ASSERT(std::find(known.begin(), known.end(), options.mode) != known.end(), "no engine '{}'",
            options.mode);
  return make_uniform_engine(options, std::move(clipping));
}

}  // namespace moonshard::privacy
