#include "runtime/sharding/unit_policy.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/globs.h"

namespace moonshard::sharding {
namespace {

constexpr const char* kForm =
    "policies such as 'model.layers.*: reshard = no; root: dtype = float32, offload = yes'";
constexpr const char* kTableForm =
    "{ { units = globs, dtype = …, reduce_dtype = …, reshard = …, offload = … }, … }";

// The same words as in the option of the same name.
std::string checked_dtype(const std::string& where, const std::string& key,
                          const std::string& word) {
  static const std::map<std::string, std::string> words = {
      {"float32", "float32"},   {"fp32", "float32"},  {"float64", "float64"}, {"fp64", "float64"},
      {"bfloat16", "bfloat16"}, {"bf16", "bfloat16"}, {"auto", "auto"}};
  const auto known = words.find(word);
  MS_CHECK(known != words.end(), "{}: expected {} = auto, float32, float64 or bfloat16, got '{}'",
           where, key, word);
  return known->second;
}

bool checked_flag(const std::string& where, const std::string& key, const std::string& word) {
  const bool is_yes = word == "yes" || word == "true", is_no = word == "no" || word == "false";
  MS_CHECK(is_yes || is_no, "{}: expected {} = yes or no, got '{}'", where, key, word);
  return is_yes;
}

void set(UnitPolicy& policy, const std::string& where, const std::string& key,
         const std::string& word) {
  if (key == "dtype") {
    policy.dtype = checked_dtype(where, key, word);
  } else if (key == "reduce_dtype") {
    policy.reduce_dtype = checked_dtype(where, key, word);
  } else if (key == "reshard") {
    policy.reshard = checked_flag(where, key, word);
  } else if (key == "offload") {
    policy.offload = checked_flag(where, key, word);
  } else {
    fail_unknown_name(where, key, {"dtype", "reduce_dtype", "reshard", "offload"});
  }
}

std::vector<std::string> pieces_of(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    const size_t first = text.find_first_not_of(' ', begin);
    if (first < end) {
      const size_t last = text.find_last_not_of(' ', end - 1);
      pieces.push_back(text.substr(first, last + 1 - first));
    }
    begin = end + 1;
  }
  return pieces;
}

UnitPolicy parse_policy(const std::string& text) {
  const std::string where = "parallel: option 'unit_policies'";
  const size_t colon = text.find(':');
  MS_CHECK(colon != std::string::npos, "{}: expected {}, got '{}' without a colon", where, kForm,
           text);
  UnitPolicy policy;
  policy.globs = globs_of(text.substr(0, colon));
  MS_CHECK(!policy.globs.empty(), "{}: expected {}, got '{}' without names of units", where, kForm,
           text);
  const std::vector<std::string> settings = pieces_of(text.substr(colon + 1), ',');
  MS_CHECK(!settings.empty(), "{}: expected {}, got '{}' that sets nothing", where, kForm, text);
  for (const std::string& setting : settings) {
    const std::vector<std::string> sides = pieces_of(setting, '=');
    MS_CHECK(sides.size() == 2, "{}: expected {}, got '{}' in '{}'", where, kForm, setting, text);
    set(policy, where, sides[0], sides[1]);
  }
  return policy;
}

bool is_default(const std::string& dtype) {
  return dtype.empty() || dtype == "auto";
}

const UnitPolicy* policy_of(const std::string& unit, const std::vector<UnitPolicy>& policies) {
  for (const UnitPolicy& policy : policies)
    if (matches_any(policy.globs, unit)) return &policy;
  return nullptr;
}

}  // namespace

std::vector<UnitPolicy> parse_unit_policies(const std::string& text) {
  std::vector<UnitPolicy> policies;
  for (const std::string& part : pieces_of(text, ';')) policies.push_back(parse_policy(part));
  return policies;
}

std::string unit_policies_text(const std::vector<UnitPolicy>& policies) {
  std::vector<std::string> parts;
  for (const UnitPolicy& policy : policies) {
    std::vector<std::string> settings;
    const auto add = [&](const char* key, const std::string& word) {
      settings.push_back(fmt::format("{} = {}", key, word));
    };
    if (!policy.dtype.empty()) add("dtype", policy.dtype);
    if (!policy.reduce_dtype.empty()) add("reduce_dtype", policy.reduce_dtype);
    if (policy.reshard) add("reshard", *policy.reshard ? "yes" : "no");
    if (policy.offload) add("offload", *policy.offload ? "yes" : "no");
    parts.push_back(
        fmt::format("{}: {}", fmt::join(policy.globs, ", "), fmt::join(settings, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<UnitPolicy> unit_policies_from_json(const std::string& where, const Json& list) {
  const auto shown = [](const Json& value) { return one_line(value).substr(0, 100); };
  MS_CHECK(list.is_array(), "{}: expected {}, got {}", where, kTableForm, shown(list));
  std::vector<UnitPolicy> policies;
  for (const Json& entry : list) {
    MS_CHECK(entry.is_object() && entry.contains("units") && entry.size() >= 2,
             "{}: expected {}, got {}", where, kTableForm, shown(entry));
    UnitPolicy policy;
    for (const auto& [key, value] : entry.items()) {
      if (key == "units") {
        MS_CHECK(value.is_string() || value.is_array(),
                 "{}: expected globs, a text or a list of them, got units = {}", where,
                 shown(value));
        const Json globs = value.is_array() ? value : Json::array({value});
        for (const Json& glob : globs) {
          MS_CHECK(glob.is_string(), "{}: expected globs of unit names, got {}", where,
                   shown(glob));
          for (const std::string& one : globs_of(glob.get<std::string>()))
            policy.globs.push_back(one);
        }
        continue;
      }
      MS_CHECK(value.is_string() || value.is_boolean(), "{}: expected {}, got {} = {}", where,
               kTableForm, key, shown(value));
      set(policy, where, key,
          value.is_string()   ? value.get<std::string>()
          : value.get<bool>() ? "yes"
                              : "no");
    }
    MS_CHECK(!policy.globs.empty(), "{}: expected {}, got no names of units", where, kTableForm);
    policies.push_back(std::move(policy));
  }
  return policies;
}

UnitSettings settings_of(const std::string& unit, bool is_root, const ShardingOptions& options,
                         const std::vector<UnitPolicy>& policies) {
  UnitSettings settings;
  settings.reduce_dtype = options.reduce_dtype;
  if (options.parallel == "fsdp") {
    settings.reshard = is_root ? options.reshard_root : options.sharding == "zero3";
    settings.offload = options.cpu_offload;
  }
  const UnitPolicy* policy = policy_of(unit, policies);
  if (policy == nullptr) return settings;
  if (!policy->dtype.empty()) settings.dtype = policy->dtype;
  if (!policy->reduce_dtype.empty()) settings.reduce_dtype = policy->reduce_dtype;
  settings.reshard = policy->reshard.value_or(settings.reshard);
  settings.offload = policy->offload.value_or(settings.offload);
  return settings;
}

void check_unit_policies(const ShardingOptions& options) {
  const bool stays_whole = options.sharding == "zero2_replicated";
  MS_CHECK(!options.reshard_root || !stays_whole,
           "parallel: option 'reshard_root': expected sharding = zero2 or zero3, got {}, whose "
           "parameters are always whole",
           options.sharding);
  for (const UnitPolicy& policy : parse_unit_policies(options.unit_policies)) {
    const std::string text = unit_policies_text({policy});
    MS_CHECK(options.parallel != "ddp" ||
                 (is_default(policy.dtype) && !policy.reshard && !policy.offload),
             "parallel: option 'unit_policies': expected reduce_dtype alone under ddp, which keeps "
             "whole copies and whose buckets cut through blocks, got '{}'; use fsdp",
             text);
    MS_CHECK(!stays_whole || !policy.reshard,
             "parallel: option 'unit_policies': expected sharding = zero2 or zero3 beside reshard, "
             "got {}, whose parameters are always whole, and '{}'",
             options.sharding, text);
  }
}

void check_globs(const std::vector<UnitPolicy>& policies, const std::vector<std::string>& units) {
  for (const UnitPolicy& policy : policies) {
    for (const std::string& glob : policy.globs) {
      const bool matches = std::any_of(units.begin(), units.end(), [&](const std::string& unit) {
        return matches_any({glob}, unit);
      });
      MS_CHECK(matches,
               "parallel: option 'unit_policies': expected globs of units, got '{}', which matches "
               "none; the units are {}",
               glob, fmt::join(units, ", "));
    }
  }
}

bool offloads_some(const ShardingOptions& options) {
  if (options.parallel != "fsdp") return false;
  if (options.cpu_offload) return true;
  const auto policies = parse_unit_policies(options.unit_policies);
  return std::any_of(policies.begin(), policies.end(),
                     [](const UnitPolicy& policy) { return policy.offload.value_or(false); });
}

bool reduces_some_in(const ShardingOptions& options, const std::string& dtype) {
  if (options.reduce_dtype == dtype) return true;
  const auto policies = parse_unit_policies(options.unit_policies);
  return std::any_of(policies.begin(), policies.end(),
                     [&](const UnitPolicy& policy) { return policy.reduce_dtype == dtype; });
}

}  // namespace moonshard::sharding
