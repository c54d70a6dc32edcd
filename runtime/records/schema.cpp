#include "runtime/records/schema.h"

#include <algorithm>
#include <type_traits>
#include <unordered_map>

namespace moonshard::records {
namespace {

class FieldLister {
 public:
  FieldLister(std::vector<FieldInfo>& list, std::string prefix)
      : list_(list), prefix_(std::move(prefix)) {}

  template <class T>
  void operator()(const Field& field, T& value) {
    const std::string path = prefix_ + field.key;
    list_.push_back({path, field.key, field.unit, field.doc});
    enter(path, value);
  }

 private:
  template <class T>
  void enter(const std::string& path, std::vector<T>&) {
    T row{};
    enter(path + "[]", row);
  }
  template <class T>
  void enter(const std::string& path, std::vector<Named<T>>&) {
    T value{};
    enter(path + ".*", value);
  }
  template <class T>
  void enter(const std::string& path, T& value) {
    constexpr bool is_leaf = std::is_arithmetic_v<T> || std::is_same_v<T, std::string> ||
                             std::is_same_v<T, Json> || std::is_same_v<T, Labels>;
    if constexpr (!is_leaf) {
      FieldLister inner(list_, path + ".");
      fields(inner, value);
    }
  }

  std::vector<FieldInfo>& list_;
  std::string prefix_;
};

}  // namespace

void Labels::add(std::string_view name, size_t most_names) {
  // Neighbours are mostly equal: a phase lasts.
  if (!index.empty() && names[index.back()] == name) {
    index.push_back(index.back());
    return;
  }
  auto place = std::find(names.begin(), names.end(), name);
  if (place == names.end()) {
    if (names.size() < most_names) names.emplace_back(name);
    place = names.end() - 1;
  }
  index.push_back(static_cast<uint32_t>(place - names.begin()));
}

const std::vector<FieldInfo>& result_fields() {
  static const std::vector<FieldInfo> all = [] {
    std::vector<FieldInfo> list;
    FieldLister lister(list, "");
    Result result;
    fields(lister, result);
    return list;
  }();
  return all;
}

std::string_view meaning_of(std::string_view key) {
  static const std::unordered_map<std::string_view, std::string_view> meanings = [] {
    std::unordered_map<std::string_view, std::string_view> map;
    for (const FieldInfo& field : result_fields()) map.emplace(field.key, field.doc);
    return map;
  }();
  const auto found = meanings.find(key);
  return found != meanings.end() ? found->second : std::string_view();
}

const char* unit_name(Unit unit) {
  switch (unit) {
    case Unit::None:
      return "";
    case Unit::Count:
      return "count";
    case Unit::Bytes:
      return "bytes";
    case Unit::Milliseconds:
      return "ms";
    case Unit::Seconds:
      return "s";
    case Unit::PerSecond:
      return "1/s";
    case Unit::Percent:
      return "%";
    case Unit::Fraction:
      return "0 to 1";
  }
  return "";
}

}  // namespace moonshard::records
