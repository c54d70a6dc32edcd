// Plain structs to bytes and back, for messages from the reading process to the window. One list of
// fields per struct serves both directions. The decoder trusts nothing: a length beyond what is
// left is an error before anything is allocated.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/base/errors.h"
#include "runtime/records/schema.h"

namespace moonshard::viewer {

template <class T>
concept PlainNumber = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Encoder {
 public:
  template <class... Ts>
  void operator()(const Ts&... values) {
    (put(values), ...);
  }
  /// A field of a record. Its free objects (options, data) are not sent.
  template <class T>
  void operator()(const records::Field&, const T& value) {
    if constexpr (!std::is_same_v<T, Json>) put(value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <PlainNumber T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(const std::string& text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put(static_cast<uint64_t>(list.size()));
    if constexpr (PlainNumber<T>) {
      bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
    } else {
      for (const T& value : list) put(value);
    }
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  requires std::is_class_v<T>
  void put(const T& value) {
    fields(*this, const_cast<T&>(value));  // the list of fields is shared with the decoder
  }

  std::string bytes_;
};

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  template <class... Ts>
  void operator()(Ts&... values) {
    (get(values), ...);
  }
  template <class T>
  void operator()(const records::Field&, T& value) {
    if constexpr (!std::is_same_v<T, Json>) get(value);
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view cut(uint64_t size) {
    if (size > bytes_.size()) throw IoError("reading process: its answer ends early");
    const std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }
  template <PlainNumber T>
  void get(T& value) {
    std::memcpy(&value, cut(sizeof value).data(), sizeof value);
  }
  void get(bool& value) { value = cut(1)[0] != 0; }
  void get(std::string& text) {
    uint64_t size = 0;
    get(size);
    text = cut(size);
  }
  template <class T>
  void get(std::vector<T>& list) {
    uint64_t size = 0;
    get(size);
    if (size > bytes_.size()) throw IoError("reading process: its answer names an absurd length");
    if constexpr (PlainNumber<T>) {
      const std::string_view part = cut(size * sizeof(T));
      list.resize(size);
      if (size > 0) std::memcpy(list.data(), part.data(), part.size());
    } else {
      list.clear();
      for (uint64_t i = 0; i < size; ++i) get(list.emplace_back());
    }
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool there = false;
    get(there);
    value.reset();
    if (there) get(value.emplace());
  }
  template <class T>
  requires std::is_class_v<T>
  void get(T& value) { fields(*this, value); }

  std::string_view bytes_;
};

template <class T>
std::string encode(const T& value) {
  Encoder encoder;
  encoder(value);
  return encoder.take();
}

/// Throws IoError unless the bytes are exactly one T.
template <class T>
T decode(std::string_view bytes) {
  Decoder decoder(bytes);
  T value{};
  decoder(value);
  if (!decoder.at_end()) throw IoError("reading process: its answer is too long");
  return value;
}

}  // namespace moonshard::viewer
