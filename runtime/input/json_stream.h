// JSON as a stream of tokens: nothing is built, so a trace of gigabytes is read in a few hundred
// kilobytes. Text is untrusted: depth, string and number sizes are bounded, and malformed
// text is refused with its byte. Bad UTF-8 passes through; text is cleaned where it is shown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/input/byte_source.h"

namespace moonshard {

enum class JsonToken : uint8_t {
  BeginObject,
  EndObject,
  BeginArray,
  EndArray,
  Key,
  String,
  Number,
  True,
  False,
  Null,
  End
};

struct JsonStreamOptions {
  uint64_t max_bytes = 64u << 20;       ///< of the text
  size_t max_string_bytes = 16u << 20;  ///< of one string
  size_t max_keys = 10'000;             ///< of one object; when duplicates are refused
  bool refuse_duplicates = true;        ///< keys of every object that is not skipped
  bool allow_nan = false;  ///< NaN, Infinity and 1e999, which Python writes, become such numbers
};

class JsonStream {
 public:
  static constexpr int kMaxDepth = 256;

  /// `where` names the file in errors. The source must outlive the stream.
  JsonStream(ByteSource& source, std::string where, const JsonStreamOptions& options = {});

  /// The next token. Throws IoError on text that is no JSON or above a limit. End comes once the
  /// whole text was one value.
  JsonToken next();

  /// Of the last Key or String; for a Number its digits. Valid until the next call.
  std::string_view text() const { return text_; }
  /// Of the last Number.
  double number() const { return number_; }

  /// Passes over the value of the Key that was just read, far faster than next(): looks at strings
  /// and brackets only.
  void skip_value();
  /// Passes over the rest of a value whose first token was `token`; checked like all else.
  void skip_rest(JsonToken token);

  int depth() const { return depth_; }
  /// Bytes of text before the place that was reached.
  uint64_t offset() const { return base_ + static_cast<uint64_t>(at_ - buffer_.data()); }
  const std::string& where() const { return where_; }
  [[noreturn]] void refuse(const std::string& problem) const;

 private:
  enum class Expect : uint8_t { Value, FirstElement, FirstKey, Colon, CommaOrEnd };

  char peek();
  bool refill(const char** keep);
  // A refusal should be cheap, for the fuzzers' sake: no temporary lives where it is thrown or in
  // the functions above, so that there is nothing to clean up on its way.
  IoError error(std::string_view problem) const;
  IoError error_at(uint64_t byte, std::string_view problem) const;
  [[noreturn]] void refuse_here(std::string_view problem) const;
  [[noreturn]] void refuse_letter(std::string_view expected, std::string_view behind = "") const;
  [[noreturn]] void refuse_text(std::string_view before, std::string_view text,
                                std::string_view behind) const;
  [[noreturn]] void refuse_above(std::string_view what, uint64_t limit,
                                 std::string_view unit) const;
  [[noreturn]] void refuse_number() const;
  [[noreturn]] void refuse_word(std::string_view word, uint64_t place) const;
  std::string got() const;
  JsonToken open(bool object);
  JsonToken close(char bracket);
  JsonToken read_value(char first);
  char read_colon();
  JsonToken read_key();
  void read_string();
  void read_escaped(const char* start);
  void read_escape();
  unsigned read_hex4();
  JsonToken read_number();
  JsonToken read_word();
  void note_key();
  void skip_string();
  void skip_container();
  char need();

  struct Keys {
    std::vector<uint64_t> few;  // hashes, while they are few
    std::unordered_set<uint64_t> many;
  };

  ByteSource& source_;
  std::string where_;
  JsonStreamOptions options_;
  std::vector<char> buffer_;  // one byte more than can be filled: a zero ends every scan
  const char* at_;
  const char* end_;
  uint64_t base_ = 0;  // bytes before the buffer
  bool source_ended_ = false;
  Expect expect_ = Expect::Value;
  int depth_ = 0;
  std::array<bool, kMaxDepth + 1> is_object_{};
  std::vector<Keys> keys_;
  std::string_view text_;
  std::string scratch_;
  double number_ = 0;
};

/// The value whose first token was read, as text on one line, cut at max_bytes.
std::string compact_text(JsonStream& stream, JsonToken token, size_t max_bytes);

/// All of `text` as a number by JSON's grammar; infinite when it does not fit.
std::optional<double> parse_json_number(std::string_view text);

inline bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

}  // namespace moonshard
