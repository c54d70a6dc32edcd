// Names, aliases and one-line docs of the clipping engines: of the built-in ones, and of those that
// scripts register. Torch-free, so that option schemas and the viewer can use it; clip_engine.h
// creates engines by name.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace moonshard::privacy {

struct EngineDescription {
  std::string name{};
  std::string doc{};  ///< one line
  bool is_private = true;
  std::vector<std::string> aliases{};  ///< the seed documents' names
  bool built_in = false;
};

/// All engines: the built-in ones, then those registered since.
std::vector<EngineDescription> engine_descriptions();
/// Adds a description, or replaces one that was registered before. Throws UsageError for names that
/// are built in or are not plain.
void register_engine_name(EngineDescription engine);
/// Throws UsageError for a name that was not registered.
void unregister_engine_name(const std::string& name);

/// For option schemas, looked up when they are needed: engines may be added late.
std::vector<std::string> engine_names();
/// From alias to name.
std::map<std::string, std::string> engine_aliases();
/// The name that an alias stands for; any other text is returned unchanged.
std::string canonical_engine(const std::string& word);

}  // namespace moonshard::privacy
