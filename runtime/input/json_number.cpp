#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>

#include "runtime/input/json_stream.h"

namespace moonshard {
namespace {

// JSON's grammar: no plus, no zeros in front, digits on both sides of the point.
bool is_json_number(std::string_view text) {
  const auto take = [&](std::string_view letters) {
    const bool found = !text.empty() && letters.find(text.front()) != std::string_view::npos;
    if (found) text.remove_prefix(1);
    return found;
  };
  const auto take_digits = [&] {
    size_t count = 0;
    while (count < text.size() && is_digit(text[count])) ++count;
    text.remove_prefix(count);
    return count > 0;
  };
  take("-");
  if (!take("0") && !take_digits()) return false;
  if (take(".") && !take_digits()) return false;
  if (take("eE")) {
    take("+-");
    if (!take_digits()) return false;
  }
  return text.empty();
}

}  // namespace

std::optional<double> parse_json_number(std::string_view text) {
  if (!is_json_number(text)) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Too large or too small: from_chars does not say which.
  if (error != std::errc()) value = std::strtod(std::string(text).c_str(), nullptr);
  return value;
}

}  // namespace moonshard
