// Characters and their classes come from utf8proc. Its own way through a whole text sorts accents
// by neighbours, which takes quadratic time for a long run of them in the wrong order; so each
// character is taken apart alone, runs are sorted here, and only putting together is left to it.
#include "runtime/data/text/normalizer.h"

#include <algorithm>
#include <vector>

#include <utf8proc.h>

#include "runtime/base/check.h"
#include "runtime/data/text/utf8.h"

namespace moonshard::data {
namespace {

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

bool is_accent(int32_t code) {
  return utf8proc_get_property(code)->combining_class != 0;
}

void sort_accents(std::vector<int32_t>& codes) {
  for (size_t i = 0; i < codes.size(); ++i) {
    if (!is_accent(codes[i])) continue;
    size_t end = i;
    while (end < codes.size() && is_accent(codes[end])) ++end;
    const auto class_of = [](int32_t code) { return utf8proc_get_property(code)->combining_class; };
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(i),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](int32_t a, int32_t b) { return class_of(a) < class_of(b); });
    i = end;
  }
}

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  if (form == NormalForm::None || is_ascii(text)) return std::string(text);
  const bool compatible = form == NormalForm::Nfkc || form == NormalForm::Nfkd;
  const auto apart = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                    (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = read_character(text, at);
    MS_ASSERT(character.valid, "ill-formed UTF-8 at byte {}", at);
    at += static_cast<size_t>(character.length);
    int32_t parts[32];  // the longest, U+FDFA in the compatible forms, has 18
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<int32_t>(character.code), parts, 32, apart, &boundary);
    MS_ASSERT(count >= 0 && count <= 32, "U+{:04X} falls into {} parts", character.code, count);
    codes.insert(codes.end(), parts, parts + count);
  }
  sort_accents(codes);
  auto length = static_cast<utf8proc_ssize_t>(codes.size());
  if (form == NormalForm::Nfc || form == NormalForm::Nfkc) {
    length = utf8proc_normalize_utf32(
        codes.data(), length, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    MS_ASSERT(length >= 0, "utf8proc: {}", utf8proc_errmsg(length));
  }
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    append_character(result, static_cast<uint32_t>(codes[static_cast<size_t>(i)]));
  return result;
}

}  // namespace moonshard::data
