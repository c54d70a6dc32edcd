#include "viewer/input/json_number.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

namespace moonshard::viewer {
namespace {

// Powers of ten that a double holds exactly: digits below 2^53 times or by one of them are rounded
// once, hence right.
constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                              1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr uint64_t kExactDigits = 1ull << 53;

// A number's parts, by JSON's grammar.
struct NumberParts {
  bool valid = false, negative = false, exact = true;
  uint64_t digits = 0;
  int exponent = 0;
};

NumberParts take_apart(std::string_view text) {
  NumberParts parts;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto take_digits = [&](int step) {
    const char* const begin = at;
    for (; at != end && is_digit(*at); ++at) {
      if (parts.digits > (std::numeric_limits<uint64_t>::max() - 9) / 10) parts.exact = false;
      parts.digits = parts.digits * 10 + static_cast<uint64_t>(*at - '0');
      parts.exponent += step;
    }
    return at != begin;
  };
  if (at != end && *at == '-') parts.negative = true, ++at;
  const bool zero_first = at != end && *at == '0';
  const char* const integer = at;
  if (!take_digits(0) || (zero_first && at - integer > 1)) return parts;
  if (at != end && *at == '.') {
    ++at;
    if (!take_digits(-1)) return parts;
  }
  if (at != end && (*at == 'e' || *at == 'E')) {
    ++at;
    const bool negative = at != end && *at == '-';
    if (at != end && (*at == '-' || *at == '+')) ++at;
    if (at == end || !is_digit(*at)) return parts;
    int exponent = 0;
    for (; at != end && is_digit(*at); ++at) {
      if (exponent < 100'000) exponent = exponent * 10 + (*at - '0');
    }
    parts.exponent += negative ? -exponent : exponent;
  }
  parts.valid = at == end;
  return parts;
}

// Digits beyond what the quick way holds exactly.
double slow_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc()) return value;
  // Too large or too small: from_chars does not say which.
  return std::strtod(std::string(text).c_str(), nullptr);
}

}  // namespace

JsonNumber parse_json_number(std::string_view text) {
  const NumberParts parts = take_apart(text);
  if (!parts.valid) return {};
  if (!parts.exact || parts.digits > kExactDigits || parts.exponent < -22 || parts.exponent > 22) {
    return {true, slow_number(text)};
  }
  const auto digits = static_cast<double>(parts.digits);
  const double value =
      parts.exponent < 0 ? digits / kPowers[-parts.exponent] : digits * kPowers[parts.exponent];
  return {true, parts.negative ? -value : value};
}

}  // namespace moonshard::viewer
