// A record with all values of the kinds that its schema says: what scripts compute with.
#include <algorithm>
#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/records/reader.h"
#include "runtime/records/schema.h"

namespace moonshard::records {
namespace {

constexpr size_t kMostTypeProblems = 20;  // of one record; more say nothing new

/// Goes through a part's fields beside the JSON that should hold them, and removes from it what is
/// of another kind. Keys that the schema does not have stay: scripts add values of their own.
class PartTypes {
 public:
  PartTypes(Json& object, std::string prefix, std::vector<std::string>& problems)
      : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

  template <class T>
  void operator()(const Field& field, T& value) {
    const auto found = object_.find(field.key);
    if (found == object_.end() || found->is_null()) return;
    if (fits(*found, value, prefix_ + field.key)) return;
    if (problems_.size() < kMostTypeProblems)
      problems_.push_back(fmt::format("{}{}: expected {}, got {}; it is left out", prefix_,
                                      field.key, kind_of(value), one_line(*found).substr(0, 60)));
    object_.erase(field.key);
  }

 private:
  static const char* kind_of(double) { return "a number"; }
  static const char* kind_of(bool) { return "true or false"; }
  static const char* kind_of(const std::string&) { return "a text"; }
  static const char* kind_of(const Json&) { return "a value"; }
  static const char* kind_of(const Labels&) { return "a list of names"; }
  template <class T>
  static const char* kind_of(const std::vector<T>&) {
    return "a list";
  }
  template <class T>
  static const char* kind_of(const std::vector<Named<T>>&) {
    return "an object";
  }
  template <class T>
  requires std::is_class_v<T>
  static const char* kind_of(const T&) { return "an object"; }

  bool fits(Json& json, double&, const std::string&) { return json.is_number(); }
  bool fits(Json& json, bool&, const std::string&) { return json.is_boolean(); }
  bool fits(Json& json, std::string&, const std::string&) { return json.is_string(); }
  bool fits(Json& json, Json&, const std::string&) { return json.is_structured(); }
  bool fits(Json& json, Labels&, const std::string&) {
    return json.is_array() &&
           std::all_of(json.begin(), json.end(), [](const Json& name) { return name.is_string(); });
  }
  // Every entry must fit: a list with a hole would shift what stands beside it.
  template <class T>
  bool fits(Json& json, std::vector<T>&, const std::string& place) {
    T row{};
    return json.is_array() && std::all_of(json.begin(), json.end(), [&](Json& entry) {
             return (entry.is_null() && std::is_same_v<T, double>) ||
                    fits(entry, row, place + "[]");
           });
  }
  template <class T>
  bool fits(Json& json, std::vector<Named<T>>&, const std::string& place) {
    T value{};
    return json.is_object() && std::all_of(json.begin(), json.end(), [&](Json& entry) {
             return entry.is_null() || fits(entry, value, place + ".*");
           });
  }
  template <class T>
  requires std::is_class_v<T>
  bool fits(Json& json, T& part, const std::string& place) {
    if (!json.is_object()) return false;
    PartTypes inner(json, place + ".", problems_);
    fields(inner, part);
    return true;
  }

  Json& object_;
  std::string prefix_;
  std::vector<std::string>& problems_;
};

}  // namespace

std::vector<std::string> make_well_typed(Json& record) {
  std::vector<std::string> problems;
  if (!record.is_object()) return problems;
  Result result;
  PartTypes types(record, "", problems);
  fields(types, result);
  return problems;
}

std::vector<std::string> make_metrics_well_typed(Json& metrics) {
  std::vector<std::string> problems;
  if (!metrics.is_object()) return problems;
  Metrics known;
  PartTypes types(metrics, "metrics.", problems);
  fields(types, known);
  for (auto metric = metrics.begin(); metric != metrics.end();)
    metric = metric->is_primitive() ? std::next(metric) : metrics.erase(metric);
  return problems;
}

}  // namespace moonshard::records
