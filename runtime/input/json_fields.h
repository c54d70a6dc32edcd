// Small steps that readers of JSON records share. Each consumes the whole value whose first token
// it is given, whatever its kind: a field of an unexpected kind is passed over.
#pragma once

#include <string>
#include <string_view>

#include "runtime/input/json_stream.h"

namespace moonshard {

inline constexpr size_t kMaxNameBytes = 1024;  // of names and short texts that are kept

inline bool is_value(JsonToken token) {
  return token != JsonToken::EndArray && token != JsonToken::EndObject && token != JsonToken::End;
}

/// At most so many bytes of a text.
inline std::string cut_text(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  return std::string(text.substr(0, max_bytes)) + "...";
}

/// Calls take(key, token) for each key of the object that was begun; take must consume the value.
template <typename Take>
void for_each_key(JsonStream& stream, const Take& take) {
  std::string key;
  while (stream.next() == JsonToken::Key) {
    key = cut_text(stream.text(), kMaxNameBytes);
    take(key, stream.next());
  }
}

/// Calls take(token) for each element of the list that was begun; take must consume the value.
template <typename Take>
void for_each_element(JsonStream& stream, const Take& take) {
  for (JsonToken token = stream.next(); is_value(token); token = stream.next()) take(token);
}

inline void take_text(JsonStream& stream, JsonToken token, std::string& into) {
  if (token != JsonToken::String) return stream.skip_rest(token);
  into = cut_text(stream.text(), kMaxNameBytes);
}

inline void take_number(JsonStream& stream, JsonToken token, double& into) {
  if (token != JsonToken::Number) return stream.skip_rest(token);
  into = stream.number();
}

inline void take_truth(JsonStream& stream, JsonToken token, bool& into) {
  if (token != JsonToken::True && token != JsonToken::False) return stream.skip_rest(token);
  into = token == JsonToken::True;
}

/// A value as a person writes it: text without quotes.
inline std::string text_of_value(JsonStream& stream, JsonToken token, size_t max_bytes) {
  if (token == JsonToken::String) return cut_text(stream.text(), max_bytes);
  return compact_text(stream, token, max_bytes);
}

/// The first token of a text that must be an object.
inline void begin_object(JsonStream& stream) {
  if (stream.next() != JsonToken::BeginObject) stream.refuse("something that is no object");
}

}  // namespace moonshard
