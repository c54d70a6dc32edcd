#include "runtime/base/utf8.h"

#include <cstring>

#include <fmt/format.h>

namespace moonshard {

Utf8Character read_character(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const uint32_t first = byte(at);
  if (first < 0x80) return {first, 1, true, false};
  // The second byte's range excludes overlong forms, surrogates and what is beyond U+10FFFF.
  int length = 0;
  uint32_t low = 0x80, high = 0xBF, code = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
    code = first & 0x1F;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    code = first & 0x0F;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    code = first & 0x07;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {0xFFFD, 1, false, false};
  }
  for (int i = 1; i < length; ++i) {
    const size_t position = at + static_cast<size_t>(i);
    if (position >= bytes.size()) return {0xFFFD, i, false, true};
    const uint32_t next = byte(position);
    if (next < low || next > high) return {0xFFFD, i, false, false};
    code = code << 6 | (next & 0x3F);
    low = 0x80, high = 0xBF;
  }
  return {code, length, true, false};
}

std::optional<size_t> first_invalid_utf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t eight = 0;
    if (at + 8 <= bytes.size()) {
      std::memcpy(&eight, bytes.data() + at, 8);
      if ((eight & 0x8080808080808080ull) == 0) {
        at += 8;
        continue;
      }
    }
    const Utf8Character character = read_character(bytes, at);
    if (!character.valid) return at;
    at += static_cast<size_t>(character.length);
  }
  return std::nullopt;
}

void append_character(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool is_white_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kMost = 100;
  std::string result = "'";
  size_t at = 0;
  while (at < text.size() && at < kMost) {
    const Utf8Character character = read_character(text, at);
    const bool control = character.code < 0x20 || (character.code >= 0x7F && character.code < 0xA0);
    if (!character.valid) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
      ++at;
      continue;
    }
    if (control) {
      result += fmt::format("\\x{:02x}", character.code);
    } else {
      result += text.substr(at, static_cast<size_t>(character.length));
    }
    at += static_cast<size_t>(character.length);
  }
  return result + (at < text.size() ? "…'" : "'");
}

}  // namespace moonshard
