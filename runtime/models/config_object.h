// One object of an untrusted config.json: typed look-ups that name file and key when they fail. A
// null counts as absent, as it does to the libraries that write it.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/models/model_options.h"

namespace moonshard::models {

class ConfigObject {
 public:
  ConfigObject(nlohmann::json values, std::string where)
      : values_(std::move(values)), where_(std::move(where)) {}

  bool has(const char* key) const {
    const auto found = values_.find(key);
    return found != values_.end() && !found->is_null();
  }
  /// Whether null is written out: "none", where the absent key stands for a default.
  bool is_null(const char* key) const {
    const auto found = values_.find(key);
    return found != values_.end() && found->is_null();
  }
  const nlohmann::json& get(const char* key) const { return values_.at(key); }

  int64_t integer(const char* key, int64_t min, int64_t max) const {
    const std::string expected = fmt::format("a whole number from {} to {}", min, max);
    require(key, expected);
    const nlohmann::json& value = get(key);
    const bool fits =
        value.is_number_unsigned() ? value.get<uint64_t>() <= INT64_MAX : value.is_number_integer();
    if (!fits || value.get<int64_t>() < min || value.get<int64_t>() > max) fail(key, expected);
    return value.get<int64_t>();
  }
  int64_t integer_or(const char* key, int64_t min, int64_t max, int64_t fallback) const {
    return has(key) ? integer(key, min, max) : fallback;
  }
  double number(const char* key, double min, double max) const {
    require(key, "a number");
    const nlohmann::json& value = get(key);
    if (!value.is_number() || !(value.get<double>() >= min) || !(value.get<double>() <= max))
      fail(key, fmt::format("a number from {} to {}", min, max));
    return value.get<double>();
  }
  double number_or(const char* key, double min, double max, double fallback) const {
    return has(key) ? number(key, min, max) : fallback;
  }
  bool boolean_or(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!get(key).is_boolean()) fail(key, "true or false");
    return get(key).get<bool>();
  }
  std::string text_or(const char* key, const std::string& fallback) const {
    if (!has(key)) return fallback;
    if (!get(key).is_string()) fail(key, "a text");
    return get(key).get<std::string>();
  }
  ConfigObject object(const char* key) const {
    if (!get(key).is_object()) fail(key, "an object");
    return {get(key), fmt::format("{}: '{}'", where_, key)};
  }

  /// Throws UsageError when the key is absent.
  void require(const char* key, const std::string& expected) const {
    if (has(key)) return;
    throw UsageError(fmt::format("{}: key '{}': expected {}, got none; the config is not complete",
                                 where_, key, expected));
  }
  [[noreturn]] void fail(const char* key, const std::string& expected) const {
    std::string got = get(key).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (got.size() > 60) got = got.substr(0, 60) + "...";
    throw UsageError(
        fmt::format("{}: key '{}': expected {}, got {}; correct the file or use a "
                    "model that is supported",
                    where_, key, expected, got));
  }

 private:
  nlohmann::json values_;
  std::string where_;
};

/// hidden_size, num_hidden_layers and num_attention_heads, within the limits of the options' own
/// descriptors: what passes here can be given by hand, too.
inline void read_transformer_sizes(const ConfigObject& config, ModelOptions& o) {
  o.hidden_dim = config.integer("hidden_size", 1, 1'000'000);
  o.num_layers = config.integer("num_hidden_layers", 1, 10'000);
  o.num_heads = config.integer("num_attention_heads", 1, 10'000);
}

}  // namespace moonshard::models
