#include "runtime/tracing/trace_files.h"

#include <algorithm>
#include <charconv>

namespace moonshard::tracing {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostEntries = 100'000;  // of a folder that anyone may have filled

bool is_trace_of(const std::string& name, int64_t rank) {
  const bool is_json = name.ends_with(".json") || name.ends_with(".json.gz");
  if (!is_json || name.find("trace") == std::string::npos) return false;
  const size_t place = name.find("rank");
  int64_t own = 0;
  if (place != std::string::npos)
    std::from_chars(name.data() + place + 4, name.data() + name.size(), own);
  return own == rank;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> list;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end;
       !ignored && entry != end && list.size() < kMostEntries; entry.increment(ignored))
    list.push_back(entry->path());
  std::sort(list.begin(), list.end());
  return list;
}

void add_traces(const fs::path& folder, int64_t rank, std::vector<std::string>& found) {
  std::error_code ignored;
  for (const fs::path& entry : entries_of(folder))
    if (is_trace_of(entry.filename().string(), rank) && fs::is_regular_file(entry, ignored))
      found.push_back(entry.string());
}

}  // namespace

std::vector<std::string> traces_at(const fs::path& path, int64_t rank) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    return fs::exists(path, ignored) ? std::vector<std::string>{path.string()}
                                     : std::vector<std::string>{};
  std::vector<std::string> found;
  add_traces(path, rank, found);
  if (!found.empty()) return found;
  for (const fs::path& point : entries_of(path / "points")) add_traces(point, rank, found);
  return found;
}

}  // namespace moonshard::tracing
