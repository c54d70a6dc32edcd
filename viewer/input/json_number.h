// A number of JSON text as a double: most of a trace is numbers, so the usual ones take no library
// call, and all are rounded once.
#pragma once

#include <string_view>

namespace moonshard::viewer {

struct JsonNumber {
  bool valid = false;  ///< by JSON's grammar
  double value = 0;    ///< infinite when it does not fit
};

/// All of `text` as a number.
JsonNumber parse_json_number(std::string_view text);

inline bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

}  // namespace moonshard::viewer
