// Control groups by the kernel's documents: cgroup-v2.rst (memory.max, memory.current, memory.stat)
// and cgroup-v1/memory.rst (memory.limit_in_bytes, ...). A group's limit holds for all below it.
#include "runtime/profile/host_memory.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include <fmt/format.h>

namespace moonshard::profile {
namespace {

namespace fs = std::filesystem;

// Version 1 says "no limit" by a number of this order.
constexpr int64_t kNoLimit = int64_t{1} << 60;

// The number of a file that holds one; nothing for "max" or no file.
std::optional<int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  int64_t number = 0;
  if (!(in >> number) || number < 0 || number >= kNoLimit) return std::nullopt;
  return number;
}

// "name number" or "name: number kB" in each line.
std::map<std::string, int64_t> table_in(const fs::path& file) {
  std::map<std::string, int64_t> table;
  std::ifstream in(file);
  for (std::string line, name, unit; std::getline(in, line);) {
    std::istringstream words(line);
    int64_t number = 0;
    if (!(words >> name >> number)) continue;
    if (name.ends_with(':')) name.pop_back();
    table[name] = words >> unit && unit == "kB" ? number * 1024 : number;
  }
  return table;
}

int64_t value_of(const std::map<std::string, int64_t>& table, const std::string& name) {
  const auto found = table.find(name);
  return found != table.end() ? found->second : 0;
}

// What the two versions call the same things.
struct GroupFiles {
  const char *limit, *usage, *swap_limit, *swap_usage;
  std::string prefix;        // of the fields of memory.stat that count the groups below
  bool swap_is_with_memory;  // version 1 limits the sum of both
};
const GroupFiles kVersion1{"memory.limit_in_bytes",
                           "memory.usage_in_bytes",
                           "memory.memsw.limit_in_bytes",
                           "memory.memsw.usage_in_bytes",
                           "total_",
                           true};
const GroupFiles kVersion2{
    "memory.max", "memory.current", "memory.swap.max", "memory.swap.current", "", false};

// Nothing without a limit.
std::optional<int64_t> free_in_group(const fs::path& folder, const GroupFiles& files,
                                     int64_t swap_free) {
  const auto limit = number_in(folder / files.limit), usage = number_in(folder / files.usage);
  if (!limit || !usage) return std::nullopt;
  const auto stat = table_in(folder / "memory.stat");
  // Given back by the kernel before it kills.
  const int64_t caches = value_of(stat, files.prefix + "inactive_file") +
                         value_of(stat, files.prefix + "active_file") +
                         value_of(stat, files.prefix + "slab_reclaimable");
  const int64_t memory_free = *limit - *usage + caches;
  const auto swap_limit = number_in(folder / files.swap_limit);
  const auto swap_usage = number_in(folder / files.swap_usage);
  if (!swap_limit || !swap_usage) return memory_free + swap_free;
  if (files.swap_is_with_memory)
    return std::min(memory_free + swap_free, *swap_limit - *swap_usage + caches);
  return memory_free + std::min(swap_free, std::max<int64_t>(0, *swap_limit - *swap_usage));
}

// The group and those above it, as far as they are seen from here: in a container the path may
// begin above what is mounted.
void bound_by_groups(const fs::path& mount, const std::string& group, const GroupFiles& files,
                     int64_t swap_free, FreeHostMemory& result) {
  for (fs::path path = group;; path = path.parent_path()) {
    const auto free = free_in_group(mount / path.relative_path(), files, swap_free);
    if (free && *free < result.bytes) {
      result.bytes = std::max<int64_t>(0, *free);
      result.bound = fmt::format("the control group {}", path.string());
    }
    if (!path.has_relative_path()) return;
  }
}

}  // namespace

FreeHostMemory free_host_memory(const fs::path& root) {
  const auto machine = table_in(root / "proc/meminfo");
  if (!machine.contains("MemAvailable")) return {};
  const int64_t swap_free = value_of(machine, "SwapFree");
  FreeHostMemory result{value_of(machine, "MemAvailable") + swap_free, "the machine"};
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  // "4:memory:/path" in version 1, "0::/path" in version 2.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (group.empty() || group[0] != '/') continue;
    if (controllers.empty()) {
      bound_by_groups(mounts, group, kVersion2, swap_free, result);
      bound_by_groups(mounts / "unified", group, kVersion2, swap_free, result);
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      bound_by_groups(mounts / "memory", group, kVersion1, swap_free, result);
    }
  }
  return result;
}

}  // namespace moonshard::profile
