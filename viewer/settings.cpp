#include "viewer/settings.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "runtime/input/open_file.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxRecent = 12;
constexpr size_t kMaxBytes = 1 << 20;
constexpr double kSmallestSide = 150;

std::vector<std::string> texts(const Json& object, const char* key) {
  std::vector<std::string> list;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return list;
  for (const Json& entry : *found) {
    if (entry.is_string()) list.push_back(entry.get<std::string>());
  }
  return list;
}

}  // namespace

void Settings::remember(const std::string& folder) {
  const std::string path = std::filesystem::path(whole_path(folder)).lexically_normal().string();
  std::erase(recent, path);
  recent.insert(recent.begin(), path);
  if (recent.size() > kMaxRecent) recent.resize(kMaxRecent);
}

std::filesystem::path settings_path() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config && *config) return std::filesystem::path(config) / "moonshard" / "viewer.json";
  const char* home = std::getenv("HOME");
  if (!home || !*home) return {};
  return std::filesystem::path(home) / ".config" / "moonshard" / "viewer.json";
}

Settings load_settings(const std::filesystem::path& path) {
  Settings settings;
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return settings;
  try {
    JsonLimits limits;
    limits.max_bytes = kMaxBytes;
    const Json saved = read_json_file(path, limits);
    settings.theme = string_or(saved, "theme", "dark") == "light" ? Theme::Light : Theme::Dark;
    settings.text_scale =
        std::clamp(static_cast<float>(number_or(saved, "text_scale", 1)), 0.5f, 3.0f);
    settings.recent = texts(saved, "recent");
    if (settings.recent.size() > kMaxRecent) settings.recent.resize(kMaxRecent);
    settings.closed_panels = texts(saved, "closed_panels");
    settings.layout = string_or(saved, "layout", "");
    const auto side = [&](const char* key) {  // below this a window cannot be found again
      const double pixels = number_or(saved, key, 0);
      return pixels >= kSmallestSide && pixels <= 16384 ? static_cast<int>(pixels) : 0;
    };
    settings.width = side("width");
    settings.height = side("height");
  } catch (const std::exception&) {
    return Settings();
  }
  return settings;
}

void save_settings(const Settings& settings, const std::filesystem::path& path) {
  if (path.empty()) return;
  const Json saved{{"schema_version", 1},
                   {"theme", settings.theme == Theme::Light ? "light" : "dark"},
                   {"text_scale", settings.text_scale},
                   {"recent", settings.recent},
                   {"closed_panels", settings.closed_panels},
                   {"width", settings.width},
                   {"height", settings.height},
                   {"layout", settings.layout}};
  try {
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, to_text(saved));
  } catch (const std::exception&) {
    // A read-only home: nothing is remembered.
  }
}

}  // namespace moonshard::viewer
