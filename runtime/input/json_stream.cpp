#include "runtime/input/json_stream.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"

namespace moonshard {
namespace {

constexpr size_t kBufferBytes = 256 * 1024;
constexpr size_t kSmallestBuffer = 4 * 1024;
constexpr size_t kFewKeys = 24;  // up to here a walk is faster than a table

// Letters a scan runs over. The zero behind the buffer is in none of them.
struct LetterSets {
  std::array<bool, 256> space{}, plain{}, of_number{};
};
constexpr LetterSets make_sets() {
  LetterSets sets;
  for (int c = 0; c < 256; ++c) {
    sets.space[c] = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    sets.plain[c] = c >= 0x20 && c != '"' && c != '\\';
    sets.of_number[c] =
        (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.' || c == 'e' || c == 'E';
  }
  return sets;
}
constexpr LetterSets kSets = make_sets();

bool in(const std::array<bool, 256>& set, char letter) {
  return set[static_cast<unsigned char>(letter)];
}

}  // namespace

JsonStream::JsonStream(ByteSource& source, std::string where, const JsonStreamOptions& options)
    : source_(source), where_(std::move(where)), options_(options) {
  const uint64_t hint = source.size_hint();
  buffer_.resize(hint == 0 ? kBufferBytes
                           : std::clamp<uint64_t>(hint + 2, kSmallestBuffer, kBufferBytes));
  at_ = end_ = buffer_.data();
  buffer_[0] = '\0';
}

IoError JsonStream::error(std::string_view problem) const {
  return IoError(
      fmt::format("{}: expected JSON, got {}; the file is damaged or foreign", where_, problem));
}

IoError JsonStream::error_at(uint64_t byte, std::string_view problem) const {
  return error(fmt::format("malformed at byte {}: {}", byte, problem));
}

void JsonStream::refuse(const std::string& problem) const {
  throw error(problem);
}

void JsonStream::refuse_here(std::string_view problem) const {
  throw error_at(offset() + 1, problem);
}

void JsonStream::refuse_letter(std::string_view expected, std::string_view behind) const {
  throw [&] { return error_at(offset() + 1, fmt::format("{}{}{}", expected, got(), behind)); }();
}

void JsonStream::refuse_text(std::string_view before, std::string_view text,
                             std::string_view behind) const {
  throw [&] { return error(fmt::format("{}{}{}", before, text, behind)); }();
}

void JsonStream::refuse_above(std::string_view what, uint64_t limit, std::string_view unit) const {
  throw [&] { return error(fmt::format("{} {} {}", what, limit, unit)); }();
}

void JsonStream::refuse_number() const {
  throw [&] {
    return error_at(offset() + 1, fmt::format("expected a number, got '{}'", text_.substr(0, 40)));
  }();
}

void JsonStream::refuse_word(std::string_view word, uint64_t place) const {
  throw [&] {
    return error_at(place, word.empty() ? "expected a value, got " + got()
                                        : fmt::format("expected a value, got '{}'", word));
  }();
}

// Makes room behind the bytes that are still needed (from *keep, or from here) and fills it.
bool JsonStream::refill(const char** keep) {
  if (source_ended_) return false;
  const char* from = keep != nullptr ? *keep : at_;
  const size_t kept = static_cast<size_t>(end_ - from),
               before_here = static_cast<size_t>(at_ - from);
  if (kept > options_.max_string_bytes) {
    refuse_above("a string of more than", options_.max_string_bytes, "bytes");
  }
  base_ += static_cast<uint64_t>(from - buffer_.data());
  if (kept > 0) std::memmove(buffer_.data(), from, kept);
  if (kept + 1 >= buffer_.size() / 2) buffer_.resize(buffer_.size() * 2);
  // Up to the limit and, there, one byte more to see whether the text goes on.
  const uint64_t left = options_.max_bytes - std::min(options_.max_bytes, base_ + kept);
  const size_t room = static_cast<size_t>(
      std::min<uint64_t>(buffer_.size() - 1 - kept, std::max<uint64_t>(left, 1)));
  const size_t count = source_.read(buffer_.data() + kept, room);
  buffer_[kept + count] = '\0';
  at_ = buffer_.data() + before_here;
  end_ = buffer_.data() + kept + count;
  if (keep != nullptr) *keep = buffer_.data();
  if (left == 0 && count > 0) {
    throw IoError(fmt::format("{}: expected at most {} bytes of JSON, got more; it is not a record",
                              where_, options_.max_bytes));
  }
  source_ended_ = count == 0;
  return count > 0;
}

char JsonStream::peek() {
  for (;;) {
    const char* at = at_;
    while (in(kSets.space, *at)) ++at;
    at_ = at;
    if (at_ != end_ || !refill(nullptr)) return *at_;
  }
}

char JsonStream::need() {
  if (at_ == end_ && !refill(nullptr)) refuse_here("the text ends too early");
  return *at_;
}

std::string JsonStream::got() const {
  if (at_ == end_) return "the end of the text";
  const auto letter = static_cast<unsigned char>(*at_);
  return letter >= 0x20 && letter < 0x7F ? fmt::format("'{}'", *at_)
                                         : fmt::format("byte 0x{:02x}", letter);
}

JsonToken JsonStream::open(bool object) {
  if (depth_ >= kMaxDepth) refuse_above("nested deeper than", kMaxDepth, "levels");
  ++at_;
  is_object_[static_cast<size_t>(++depth_)] = object;
  if (object && options_.refuse_duplicates) {
    if (keys_.size() <= static_cast<size_t>(depth_)) keys_.resize(static_cast<size_t>(depth_) + 1);
    keys_[static_cast<size_t>(depth_)].few.clear();
    keys_[static_cast<size_t>(depth_)].many.clear();
  }
  expect_ = object ? Expect::FirstKey : Expect::FirstElement;
  return object ? JsonToken::BeginObject : JsonToken::BeginArray;
}

JsonToken JsonStream::close(char bracket) {
  ++at_;
  --depth_;
  expect_ = Expect::CommaOrEnd;
  return bracket == '}' ? JsonToken::EndObject : JsonToken::EndArray;
}

char JsonStream::read_colon() {
  if (peek() != ':') refuse_letter("expected ':' after a key, got ");
  ++at_;
  return peek();
}

JsonToken JsonStream::next() {
  if (expect_ == Expect::Colon) return read_value(read_colon());
  char letter = peek();
  if (expect_ == Expect::CommaOrEnd) {
    if (depth_ == 0) {
      if (at_ == end_) return JsonToken::End;
      refuse_letter("expected the end of the text, got ");
    }
    const bool object = is_object_[static_cast<size_t>(depth_)];
    if (letter == (object ? '}' : ']')) return close(letter);
    if (letter != ',') refuse_letter("expected ',' or the end of a list, got ");
    ++at_;
    letter = peek();
    if (object) return read_key();
  }
  if (expect_ == Expect::FirstKey) return letter == '}' ? close(letter) : read_key();
  if (expect_ == Expect::FirstElement && letter == ']') return close(letter);
  return read_value(letter);
}

JsonToken JsonStream::read_key() {
  if (*at_ != '"') refuse_letter("expected a key in quotes, got ");
  ++at_;
  read_string();
  if (options_.refuse_duplicates) note_key();
  expect_ = Expect::Colon;
  return JsonToken::Key;
}

// Hashes stand for the keys: a collision is refused as a duplicate, which is harmless.
void JsonStream::note_key() {
  Keys& keys = keys_[static_cast<size_t>(depth_)];
  const uint64_t hash = std::hash<std::string_view>()(text_);
  bool is_new;
  if (keys.many.empty()) {
    is_new = std::ranges::find(keys.few, hash) == keys.few.end();
    keys.few.push_back(hash);
    if (keys.few.size() > kFewKeys) keys.many.insert(keys.few.begin(), keys.few.end());
  } else {
    is_new = keys.many.insert(hash).second;
  }
  if (!is_new) refuse_text("duplicate key '", text_.substr(0, 80), "'");
  if (keys.many.size() > options_.max_keys) {
    refuse_above("an object of more than", options_.max_keys, "keys");
  }
}

JsonToken JsonStream::read_value(char first) {
  if (first == '{' || first == '[') return open(first == '{');
  JsonToken token;
  if (first == '"') {
    ++at_;
    read_string();
    token = JsonToken::String;
  } else if (first == '-' || is_digit(first)) {
    token = read_number();
  } else {
    token = read_word();
  }
  expect_ = Expect::CommaOrEnd;
  return token;
}

void JsonStream::read_string() {
  const char* start = at_;
  for (;;) {
    const char* at = at_;
    while (in(kSets.plain, *at)) ++at;
    at_ = at;
    if (*at == '"') break;
    if (*at == '\\') return read_escaped(start);
    if (at != end_) refuse_letter("a string holds ", ", which must be escaped");
    if (!refill(&start)) refuse_here("the text ends within a string");
  }
  text_ = std::string_view(start, static_cast<size_t>(at_ - start));
  if (text_.size() > options_.max_string_bytes) {
    refuse_above("a string of more than", options_.max_string_bytes, "bytes");
  }
  ++at_;
}

void JsonStream::read_escaped(const char* start) {
  scratch_.assign(start, at_);
  for (;;) {
    const char* at = at_;
    while (in(kSets.plain, *at)) ++at;
    scratch_.append(at_, at);
    at_ = at;
    if (scratch_.size() > options_.max_string_bytes) {
      refuse_above("a string of more than", options_.max_string_bytes, "bytes");
    }
    if (*at == '"') break;
    if (*at == '\\') {
      ++at_;
      read_escape();
    } else if (at != end_) {
      refuse_letter("a string holds ", ", which must be escaped");
    } else if (!refill(nullptr)) {
      refuse_here("the text ends within a string");
    }
  }
  ++at_;
  text_ = scratch_;
}

void JsonStream::read_escape() {
  static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const char letter = need();
  const size_t place = letter == '\0' ? std::string_view::npos : kLetters.find(letter);
  if (place != std::string_view::npos) {
    ++at_;
    scratch_ += kMeanings[place];
    return;
  }
  if (letter != 'u') refuse_letter("expected an escape such as \\n, got ");
  ++at_;
  unsigned code = read_hex4();
  if (code >= 0xD800 && code < 0xDC00) {  // the first half of a pair
    if (need() != '\\') refuse_here("a surrogate without its second half");
    ++at_;
    if (need() != 'u') refuse_here("a surrogate without its second half");
    ++at_;
    const unsigned low = read_hex4();
    if (low < 0xDC00 || low > 0xDFFF) refuse_here("a surrogate without its second half");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code <= 0xDFFF) {
    refuse_here("a surrogate without its first half");
  }
  append_character(scratch_, code);
}

unsigned JsonStream::read_hex4() {
  unsigned code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char letter = need();
    const char low = static_cast<char>(letter | 0x20);
    if (!is_digit(letter) && !(low >= 'a' && low <= 'f')) {
      refuse_letter("expected four hexadecimal digits after \\u, got ");
    }
    code = code * 16 + static_cast<unsigned>(is_digit(letter) ? letter - '0' : low - 'a' + 10);
  }
  return code;
}

JsonToken JsonStream::read_number() {
  const char* start = at_;
  do {
    const char* at = at_;  // a local one stays in a register
    while (in(kSets.of_number, *at)) ++at;
    at_ = at;
  } while (at_ == end_ && refill(&start));
  text_ = std::string_view(start, static_cast<size_t>(at_ - start));
  if (text_ == "-" && *at_ == 'I' && options_.allow_nan) {
    read_word();
    number_ = -number_;
    return JsonToken::Number;
  }
  const std::optional<double> number = parse_json_number(text_);
  if (!number) refuse_number();
  if (!std::isfinite(*number) && !options_.allow_nan) {
    refuse_text("number ", text_.substr(0, 40), " does not fit a double");
  }
  number_ = *number;
  return JsonToken::Number;
}

JsonToken JsonStream::read_word() {
  char word[12];
  size_t size = 0;
  const uint64_t place = offset() + 1;
  while (size < sizeof word && (at_ != end_ || refill(nullptr)) &&
         ((*at_ | 0x20) >= 'a' && (*at_ | 0x20) <= 'z')) {
    word[size++] = *at_++;
  }
  const std::string_view text(word, size);
  if (text == "true") return JsonToken::True;
  if (text == "false") return JsonToken::False;
  if (text == "null") return JsonToken::Null;
  if (options_.allow_nan && (text == "NaN" || text == "Infinity")) {
    number_ = text == "NaN" ? std::nan("") : HUGE_VAL;
    text_ = text == "NaN" ? "NaN" : "Infinity";
    return JsonToken::Number;
  }
  refuse_word(text, place);
}

}  // namespace moonshard
