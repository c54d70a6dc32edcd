// Parts of a record as JSON, by their lists of fields (schema.h).
#pragma once

#include <type_traits>

#include "runtime/records/schema.h"

namespace moonshard::records {

inline bool is_missing(double value) {
  return std::isnan(value);
}
/// A flag alone does not make a part present.
inline bool is_missing(bool value) {
  return !value;
}
inline bool is_missing(const Json& value) {
  return value.is_null();
}
inline bool is_missing(const std::string& text) {
  return text.empty();
}
inline bool is_missing(const Labels& labels) {
  return labels.index.empty();
}
template <class T>
bool is_missing(const std::vector<T>& list) {
  return list.empty();
}
template <class T>
requires std::is_class_v<T>
bool is_missing(const T& part);

class MissingCheck {
 public:
  template <class T>
  void operator()(const Field&, const T& value) {
    all_missing = all_missing && is_missing(value);
  }
  bool all_missing = true;
};

template <class T>
requires std::is_class_v<T>
bool is_missing(const T& part) {
  MissingCheck check;
  fields(check, const_cast<T&>(part));  // the list of fields is shared with the readers
  return check.all_missing;
}

class JsonWriter {
 public:
  template <class T>
  void operator()(const Field& field, const T& value) {
    if (is_missing(value) && !std::is_same_v<T, bool>) {
      if (field.missing == Missing::Null) object_[field.key] = nullptr;
      if (field.missing == Missing::Empty) object_[field.key] = Json::array();
      return;
    }
    object_[field.key] = json(value, field.unit);
  }
  Json take() { return std::move(object_); }

 private:
  static Json json(double value, Unit unit) {
    const bool is_whole = unit == Unit::Count || unit == Unit::Bytes;
    if (is_whole && std::abs(value) < 9e15 && value == std::floor(value))
      return static_cast<int64_t>(value);
    return value;
  }
  static Json json(bool value, Unit) { return value; }
  static Json json(const std::string& text, Unit) { return text; }
  static Json json(const Json& value, Unit) { return value; }
  static Json json(const Labels& labels, Unit) {
    Json list = Json::array();
    for (const uint32_t index : labels.index) list.push_back(labels.names[index]);
    return list;
  }
  template <class T>
  static Json json(const std::vector<T>& values, Unit unit) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(json(value, unit));
    return list;
  }
  template <class T>
  static Json json(const std::vector<Named<T>>& entries, Unit unit) {
    Json object = Json::object();
    for (const Named<T>& entry : entries) object[entry.name] = json(entry.value, unit);
    return object;
  }
  template <class T>
  requires std::is_class_v<T>
  static Json json(const T& part, Unit) {
    JsonWriter inner;
    fields(inner, const_cast<T&>(part));
    return inner.take();
  }

  Json object_ = Json::object();
};

/// A part as the object that stands in the file.
template <class T>
Json json_of(const T& part) {
  JsonWriter writer;
  fields(writer, const_cast<T&>(part));
  return writer.take();
}

/// A list of rows as the array that stands in the file.
template <class T>
Json json_of(const std::vector<T>& rows) {
  Json list = Json::array();
  for (const T& row : rows) list.push_back(json_of(row));
  return list;
}

/// Keys of a part in the order of the file, and its numbers.
class NumberLister {
 public:
  template <class T>
  void operator()(const Field& field, const T& value) {
    keys.push_back(field.key);
    if constexpr (std::is_same_v<T, double>) {
      if (!is_missing(value)) numbers.push_back({field.key, value});
    }
  }
  std::vector<std::string> keys;
  std::vector<Named<double>> numbers;
};

/// The columns of a part's CSV table.
template <class T>
std::vector<std::string> keys_of() {
  NumberLister lister;
  T part;
  fields(lister, part);
  return lister.keys;
}

/// The numbers that a part has, by key.
template <class T>
std::vector<Named<double>> numbers_of(const T& part) {
  NumberLister lister;
  fields(lister, const_cast<T&>(part));
  return lister.numbers;
}

}  // namespace moonshard::records
