// A record against its schema, and its figures against each other.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/records/folder_check.h"
#include "runtime/records/schema.h"

namespace moonshard::records {
namespace {

constexpr size_t kMostDefects = 50;  // of one record; more say nothing new

/// Goes through a part's fields beside the JSON that should hold them.
class PartCheck {
 public:
  PartCheck(const Json& object, std::string prefix, std::vector<std::string>& defects)
      : object_(object), prefix_(std::move(prefix)), defects_(defects) {}

  template <class T>
  void operator()(const Field& field, T& value) {
    known_.insert(field.key);
    const auto found = object_.find(field.key);
    if (found == object_.end()) return;  // what was not measured is absent
    if (found->is_null() && field.missing == Missing::Null) return;
    check(prefix_ + field.key, *found, value, field.unit);
  }

  void name_unknown_keys() {
    for (const auto& [key, value] : object_.items())
      if (!known_.contains(key)) add(prefix_ + key, "the schema has no such field");
  }

 private:
  void add(const std::string& place, const std::string& what) {
    if (defects_.size() < kMostDefects) defects_.push_back(place + ": " + what);
  }
  bool expect(bool is_right, const std::string& place, const char* kind, const Json& got) {
    if (!is_right)
      add(place, fmt::format("expected {}, got {}", kind, one_line(got).substr(0, 60)));
    return is_right;
  }

  void check(const std::string& place, const Json& json, double&, Unit unit) {
    if (json.is_null()) return;  // not finite: JSON has no such number
    if (!expect(json.is_number(), place, "a number", json)) return;
    const double number = json.get<double>();
    if (unit == Unit::Count || unit == Unit::Bytes)
      expect(number == std::floor(number), place, "a whole number", json);
    const bool may_be_negative = unit == Unit::None || unit == Unit::Percent || is_signed(place);
    expect(may_be_negative || number >= 0, place, "0 or more", json);
  }
  void check(const std::string& place, const Json& json, bool&, Unit) {
    expect(json.is_boolean(), place, "true or false", json);
  }
  void check(const std::string& place, const Json& json, std::string&, Unit) {
    expect(json.is_string(), place, "a text", json);
  }
  void check(const std::string&, const Json&, Json&, Unit) {}
  void check(const std::string& place, const Json& json, Labels&, Unit) {
    if (!expect(json.is_array(), place, "a list of names", json)) return;
    for (const Json& name : json)
      if (!expect(name.is_string(), place + "[]", "a text", name)) return;
  }
  template <class T>
  void check(const std::string& place, const Json& json, std::vector<T>&, Unit unit) {
    if (!expect(json.is_array(), place, "a list", json)) return;
    T row{};
    for (size_t i = 0; i < json.size() && defects_.size() < kMostDefects; ++i)
      check(fmt::format("{}[{}]", place, i), json[i], row, unit);
  }
  template <class T>
  void check(const std::string& place, const Json& json, std::vector<Named<T>>&, Unit unit) {
    if (!expect(json.is_object(), place, "an object", json)) return;
    T value{};
    for (const auto& [name, entry] : json.items()) check(place + "." + name, entry, value, unit);
  }
  template <class T>
  requires std::is_class_v<T>
  void check(const std::string& place, const Json& json, T& part, Unit) {
    if (!expect(json.is_object(), place, "an object", json)) return;
    PartCheck inner(json, place + ".", defects_);
    fields(inner, part);
    inner.name_unknown_keys();
  }

  // Bytes free are -1 where nobody knows, and owners may be a little below zero by rounding.
  static bool is_signed(const std::string& place) {
    return place == "bytes_free" || place == "bytes_asked" || place.find("breakdown") == 7 ||
           place.find("after_step") == 7 || place.find("owners") != std::string::npos ||
           place == "memory.rest_bytes";
  }

  const Json& object_;
  std::string prefix_;
  std::vector<std::string>& defects_;
  std::set<std::string> known_;
};

bool about_equal(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::max({std::abs(a), std::abs(b), 1e-9});
}

double at_path(const Json& record, std::initializer_list<const char*> keys) {
  const Json* value = &record;
  for (const char* key : keys) {
    if (!value->is_object() || !value->contains(key)) return NAN;
    value = &value->at(key);
  }
  return value->is_number() ? value->get<double>() : NAN;
}

std::vector<double> numbers_at(const Json& record, const char* part, const char* key) {
  std::vector<double> numbers;
  if (!record.contains(part) || !record[part].is_object() || !record[part].contains(key)) return {};
  for (const Json& value : record[part][key])
    if (value.is_number()) numbers.push_back(value.get<double>());
  return numbers;
}

// A record without what a script's own function has measured: the schema does not know its names.
// `own_metrics` lists those of the metrics; steps may have any.
Json without_own_figures(const Json& record) {
  const auto names = record.find("own_metrics");
  // Lua writes an empty list as an empty object.
  if (names == record.end() || !(names->is_array() || (names->is_object() && names->empty())))
    return record;
  Json plain = record;
  plain.erase("own_metrics");
  for (const Json& name : *names)
    if (name.is_string() && plain.contains("metrics") && plain["metrics"].is_object())
      plain["metrics"].erase(name.get<std::string>());
  plain.erase("steps");
  return plain;
}

// Figures that are made of others.
void check_sums(const Json& record, std::vector<std::string>& defects) {
  const auto expect_equal = [&](const char* what, double found, double wanted) {
    if (std::isnan(found) || std::isnan(wanted) || about_equal(found, wanted)) return;
    defects.push_back(fmt::format("{}: expected {:.10g}, got {:.10g}", what, wanted, found));
  };
  const double peak = at_path(record, {"metrics", "peak_memory_bytes"});
  expect_equal("metrics.peak_memory_mb, from peak_memory_bytes",
               at_path(record, {"metrics", "peak_memory_mb"}), peak / 1048576.0);
  expect_equal("metrics.peak_memory_gb, from peak_memory_bytes",
               at_path(record, {"metrics", "peak_memory_gb"}), peak / 1073741824.0);
  std::vector<double> samples = numbers_at(record, "time", "samples_ms");
  if (!samples.empty()) {
    double sum = 0;
    for (const double sample : samples) sum += sample;
    expect_equal("metrics.avg_time_ms, from time.samples_ms",
                 at_path(record, {"metrics", "avg_time_ms"}),
                 sum / static_cast<double>(samples.size()));
    std::sort(samples.begin(), samples.end());
    const size_t n = samples.size();
    expect_equal("metrics.median_time_ms, from time.samples_ms",
                 at_path(record, {"metrics", "median_time_ms"}),
                 (samples[(n - 1) / 2] + samples[n / 2]) / 2);
  }
  if (!record.contains("memory") || !record["memory"].is_object()) return;
  const Json& memory = record["memory"];
  if (memory.contains("breakdown") && memory["breakdown"].is_array()) {
    double sum = 0;
    for (const Json& row : memory["breakdown"]) sum += number_or(row, "bytes", 0);
    expect_equal("memory.breakdown, its sum against memory.peak_bytes", sum,
                 number_or(memory, "peak_bytes", NAN));
  }
  if (!memory.contains("timeline") || !memory["timeline"].is_object()) return;
  const Json& timeline = memory["timeline"];
  const size_t count = timeline.contains("ms") ? timeline["ms"].size() : 0;
  const auto expect_length = [&](const std::string& what, const Json& list) {
    if (list.size() != count)
      defects.push_back(fmt::format("{}: expected {} entries as memory.timeline.ms, got {}", what,
                                    count, list.size()));
  };
  for (const char* key : {"total", "phase"})
    if (timeline.contains(key))
      expect_length(fmt::format("memory.timeline.{}", key), timeline[key]);
  if (timeline.contains("owners") && timeline["owners"].is_object())
    for (const auto& [owner, list] : timeline["owners"].items())
      expect_length("memory.timeline.owners." + owner, list);
}

}  // namespace

std::vector<std::string> check_record(const Json& whole) {
  if (!whole.is_object()) return {"expected an object"};
  const Json record = without_own_figures(whole);
  std::vector<std::string> defects;
  const double version = number_or(record, "schema_version", NAN);
  if (!(version >= 1 && version <= kSchemaVersion))
    defects.push_back(fmt::format("schema_version: expected 1 to {}, got {}", kSchemaVersion,
                                  record.contains("schema_version")
                                      ? one_line(record["schema_version"]).substr(0, 40)
                                      : "none"));
  Result result;
  PartCheck check(record, "", defects);
  fields(check, result);
  check.name_unknown_keys();
  static const std::set<std::string> known = {"ok",      "oom",     "failed",
                                              "timeout", "skipped", "interrupted"};
  const std::string status = string_or(record, "status", "");
  if (!known.contains(status))
    defects.push_back(fmt::format(
        "status: expected ok, oom, failed, timeout, skipped or interrupted, got '{}'", status));
  if (!record.contains("options") || !record["options"].is_object())
    defects.emplace_back("options: expected an object, got none");
  if (status == "ok" && (!record.contains("metrics") || !record.contains("time")))
    defects.emplace_back("metrics, time: expected both in a record with status ok");
  if (status != "ok" && string_or(record, "error", "").empty())
    defects.push_back("error: expected a reason for status " + status);
  check_sums(record, defects);
  return defects;
}

}  // namespace moonshard::records
