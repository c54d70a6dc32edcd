// UTF-8 as Unicode defines it (chapter 3.9): no overlong forms, no surrogates, nothing above
// U+10FFFF. Ill-formed sequences are divided into replacement characters as Python and the WHATWG
// encoding standard do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moonshard {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  ///< U+FFFD

struct Utf8Character {
  uint32_t code = 0;
  int length = 0;  ///< bytes; of an ill-formed one those that a replacement stands for
  bool valid = false;
  bool cut = false;  ///< ill-formed only because the bytes end here
};

/// The character at a position before the end.
Utf8Character read_character(std::string_view bytes, size_t at);

/// Position of the first ill-formed byte.
std::optional<size_t> first_invalid_utf8(std::string_view bytes);

void append_character(std::string& text, uint32_t code);

/// Letters that separate words by Unicode's White_Space.
bool is_white_space(uint32_t code);

/// Text from an untrusted file, safe for an error text: quoted, at most 100 bytes, no control
/// characters.
std::string in_quotes(std::string_view text);

}  // namespace moonshard
