// The regular expression by which a tokenizer splits text before it merges bytes. tokenizer.json's
// patterns are Oniguruma's; they run on PCRE2. Only what both interpret identically is accepted
// (and \s and \w, which are spelled out); anything else is refused by name instead of splitting
// differently.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moonshard::data {

/// The pattern for PCRE2. Throws IoError "where: …" for what is not known to mean the same.
std::string translated_pattern(std::string_view pattern, const std::string& where);

class SplitPattern {
 public:
  /// Throws IoError "where: …" for a pattern that is wrong, too long or not supported.
  SplitPattern(std::string_view pattern, const std::string& where);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;

  /// Appends the pieces of valid UTF-8 text: each match, and what lies between two matches. Several
  /// threads may call it. Throws IoError when the pattern exceeds the step limit,
  /// Interrupted when the user asked to stop.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
  std::string where_;
};

/// What ByteLevel with use_regex = true cuts by (GPT-2).
extern const char* const kByteLevelPattern;

}  // namespace moonshard::data
