// Unicode normalisation forms of a text.
#pragma once

#include <string>
#include <string_view>

namespace moonshard::data {

enum class NormalForm { None, Nfc, Nfd, Nfkc, Nfkd };

/// Of valid UTF-8. Linear in the length (times a logarithm in the longest run of accents).
std::string normalized(std::string_view text, NormalForm form);

}  // namespace moonshard::data
