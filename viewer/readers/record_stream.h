// Parts of a record out of a stream of JSON, by their lists of fields (records/schema.h). Files are
// untrusted: a field of an unexpected kind is skipped, lists are bounded.
#pragma once

#include <type_traits>
#include <vector>

#include "runtime/input/json_fields.h"
#include "runtime/records/schema.h"

namespace moonshard::viewer {

inline constexpr size_t kMaxNumbers = 1'000'000;  // of one list; the rest is dropped
inline constexpr size_t kMaxParts = 1000;         // phases, owners: what a person can tell apart

/// Reads the object whose BeginObject was taken.
template <class T>
void read_part(JsonStream& stream, T& part);

/// Takes one value of the stream into the field of that key; a key that no field has is passed
/// over.
class FieldReader {
 public:
  FieldReader(JsonStream& stream, const std::string& key, JsonToken token)
      : stream_(stream), key_(key), token_(token) {}

  template <class T>
  void operator()(const records::Field& field, T& value) {
    (*this)(field.key, value);
  }
  template <class T>
  void operator()(std::string_view key, T& value) {
    if (is_taken_ || key_ != key) return;
    is_taken_ = true;
    take(token_, value);
  }
  /// A value that begins so, which `read` takes to its end.
  template <class Read>
  void operator()(std::string_view key, JsonToken begin, const Read& read) {
    if (is_taken_ || key_ != key || token_ != begin) return;
    is_taken_ = true;
    read();
  }
  void finish() {
    if (!is_taken_) stream_.skip_rest(token_);
  }

 private:
  void take(JsonToken token, double& value) { take_number(stream_, token, value); }
  void take(JsonToken token, bool& value) { take_truth(stream_, token, value); }
  void take(JsonToken token, std::string& value) { take_text(stream_, token, value); }
  void take(JsonToken token, Json&) { stream_.skip_rest(token); }
  void take(JsonToken token, records::Labels& labels) {
    if (token != JsonToken::BeginArray) return stream_.skip_rest(token);
    for_each_element(stream_, [&](JsonToken element) {
      std::string name;
      take_text(stream_, element, name);
      if (labels.index.size() < kMaxNumbers) labels.add(name, kMaxParts);
    });
  }
  template <class T>
  void take(JsonToken token, std::vector<T>& list) {
    if (token != JsonToken::BeginArray) return stream_.skip_rest(token);
    for_each_element(stream_, [&](JsonToken element) {
      const bool is_row = element == JsonToken::BeginObject;
      // Numbers and names keep their place whatever stands there; rows must be objects.
      if (list.size() >= most<T>() || (is_part<T> && !is_row)) return stream_.skip_rest(element);
      take(element, list.emplace_back(missing<T>()));
    });
  }
  template <class T>
  void take(JsonToken token, std::vector<records::Named<T>>& entries) {
    if (token != JsonToken::BeginObject) return stream_.skip_rest(token);
    for_each_key(stream_, [&](const std::string& name, JsonToken value) {
      if (entries.size() >= kMaxParts || !begins<T>(value)) return stream_.skip_rest(value);
      take(value, entries.emplace_back(records::Named<T>{name, missing<T>()}).value);
    });
  }
  template <class T>
  requires std::is_class_v<T>
  void take(JsonToken token, T& part) {
    if (token != JsonToken::BeginObject) return stream_.skip_rest(token);
    read_part(stream_, part);
  }

  template <class T>
  static constexpr bool is_part = std::is_class_v<T> && !std::is_same_v<T, std::string>;
  template <class T>
  static constexpr size_t most() {
    return std::is_same_v<T, std::string> ? kMaxParts : kMaxNumbers;
  }
  template <class T>
  static T missing() {
    if constexpr (std::is_same_v<T, double>) return NAN;
    return T{};
  }
  template <class T>
  static bool begins(JsonToken token) {
    if constexpr (std::is_same_v<T, double>) return token == JsonToken::Number;
    if constexpr (std::is_same_v<T, std::vector<double>>) return token == JsonToken::BeginArray;
    return token == JsonToken::BeginObject;
  }

  JsonStream& stream_;
  const std::string& key_;
  JsonToken token_;
  bool is_taken_ = false;
};

/// Calls list(reader) for each key of the object whose BeginObject was taken; it names all fields.
template <class List>
void read_fields(JsonStream& stream, const List& list) {
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    FieldReader reader(stream, key, token);
    list(reader);
    reader.finish();
  });
}

template <class T>
void read_part(JsonStream& stream, T& part) {
  read_fields(stream, [&](FieldReader& field) { fields(field, part); });
}

}  // namespace moonshard::viewer
