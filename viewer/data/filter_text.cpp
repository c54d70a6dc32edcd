// Text of filters: wildcards without regard to case.
#include "viewer/data/filter.h"

namespace moonshard::viewer {
namespace {

// ASCII only: other letters are bytes that must be equal.
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool matches_wildcards(std::string_view text, std::string_view pattern) {
  // On a mismatch the last * takes one more character: no recursion, at most text times pattern.
  size_t t = 0, p = 0, star = std::string_view::npos, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || lower(pattern[p]) == lower(text[t]))) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace moonshard::viewer
