#include "viewer/widgets/metric_groups.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

namespace moonshard::viewer {
namespace {

constexpr const char* kTime = "Time";
constexpr const char* kMemory = "Memory";
constexpr const char* kUse = "Throughput and use";
constexpr const char* kCommunication = "Communication";
constexpr const char* kPrivacy = "Privacy";
constexpr const char* kOther = "Other";
constexpr std::array kOrder = {kTime, kMemory, kUse, kCommunication, kPrivacy, kOther};

bool is_one_of(std::string_view key, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, key) != names.end();
}

bool ends_with_any(std::string_view key, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return key.ends_with(end); });
}

bool repeats(const std::vector<std::string>& keys, const std::string& key) {
  if (!ends_with_any(key, {"_mb", "_gb"})) return false;
  const std::string bytes = key.substr(0, key.size() - 3) + "_bytes";
  return std::ranges::find(keys, bytes) != keys.end();
}

// The subject a metric belongs to.
const char* metric_subject(std::string_view key) {
  if (key.starts_with("comm_")) return kCommunication;
  if (key.starts_with("clip_") || key.starts_with("epsilon") ||
      is_one_of(key, {"delta", "sampling_rate", "dropped_samples", "noise_multiplier"})) {
    return kPrivacy;
  }
  if (ends_with_any(key, {"_bytes", "_mb", "_gb"})) return kMemory;
  if (ends_with_any(key, {"_per_s", "_utilization_percent"}) ||
      is_one_of(key, {"flops_per_step", "mfu_percent", "cpu_percent"})) {
    return kUse;
  }
  const bool time = ends_with_any(key, {"_ms", "_us", "_s"}) ||
                    is_one_of(key, {"data_share_percent", "profiler_overhead_percent"});
  return time ? kTime : kOther;
}

}  // namespace

std::vector<MetricGroup> metric_groups(const std::vector<std::string>& keys) {
  std::vector<MetricGroup> groups;
  for (const char* subject : kOrder) groups.push_back({subject, {}});
  for (size_t k = 0; k < keys.size(); ++k) {
    if (repeats(keys, keys[k])) continue;
    const std::string_view subject = metric_subject(keys[k]);
    for (MetricGroup& group : groups) {
      if (subject == group.title) group.keys.push_back(k);
    }
  }
  std::erase_if(groups, [](const MetricGroup& group) { return group.keys.empty(); });
  return groups;
}

}  // namespace moonshard::viewer
