// The parts of JsonStream that pass over values, and the text of a small value.
#include <array>

#include "runtime/base/check.h"
#include "runtime/input/json_stream.h"

namespace moonshard {
namespace {

constexpr std::array<bool, 256> letters(std::string_view text) {
  std::array<bool, 256> set{};
  for (const char letter : text) set[static_cast<unsigned char>(letter)] = true;
  set[0] = true;  // the zero behind the buffer ends every scan
  return set;
}
constexpr std::array<bool, 256> kOutsideStrings = letters("\"{}[]");
constexpr std::array<bool, 256> kInStrings = letters("\"\\");

// Of the tokens that always read the same, in the order of JsonToken.
constexpr const char* kTokenTexts[] = {"{", "}",    "[",     "]",    "",    "",
                                       "",  "true", "false", "null", "null"};

void append_quoted(std::string& text, std::string_view value) {
  text += '"';
  for (const char letter : value) {
    if (letter == '"' || letter == '\\') text += '\\';
    text += letter;
  }
  text += '"';
}

}  // namespace

void JsonStream::skip_value() {
  const char first = read_colon();
  if (first == '"') {
    ++at_;
    skip_string();
  } else if (first == '{' || first == '[') {
    skip_container();
  } else {
    read_value(first);
  }
  expect_ = Expect::CommaOrEnd;
}

void JsonStream::skip_string() {
  for (;;) {
    const char* at = at_;
    while (!kInStrings[static_cast<unsigned char>(*at)]) ++at;
    at_ = at;
    if (*at == '"') break;
    if (at == end_) {
      if (!refill(nullptr)) refuse_here("the text ends within a string");
      continue;
    }
    ++at_;
    if (*at == '\\') {
      need();
      ++at_;
    }
  }
  ++at_;
}

void JsonStream::skip_container() {
  std::array<char, kMaxDepth + 1> closers{};
  size_t level = 0;
  for (;;) {
    const char* at = at_;
    while (!kOutsideStrings[static_cast<unsigned char>(*at)]) ++at;
    at_ = at;
    const char letter = *at;
    if (at == end_) {
      if (!refill(nullptr)) refuse_here("the text ends too early");
      continue;
    }
    ++at_;
    if (letter == '"') {
      skip_string();
    } else if (letter == '{' || letter == '[') {
      if (static_cast<size_t>(depth_) + level >= kMaxDepth) {
        refuse_above("nested deeper than", kMaxDepth, "levels");
      }
      closers[level++] = letter == '{' ? '}' : ']';
    } else if (letter == '\0' || letter != closers[level - 1]) {
      --at_;
      refuse_letter("expected the end of a list, got ");
    } else if (--level == 0) {
      return;
    }
  }
}

void JsonStream::skip_rest(JsonToken token) {
  if (token != JsonToken::BeginObject && token != JsonToken::BeginArray) return;
  const int outside = depth_ - 1;
  while (depth_ > outside) next();
}

std::string compact_text(JsonStream& stream, JsonToken token, size_t max_bytes) {
  std::string text;
  const int outside =
      stream.depth() - (token == JsonToken::BeginObject || token == JsonToken::BeginArray ? 1 : 0);
  bool first = true;  // of its list
  for (;; token = stream.next()) {
    const bool closes = token == JsonToken::EndObject || token == JsonToken::EndArray;
    if (text.size() < max_bytes) {
      if (!first && !closes) text += ',';
      first = false;
      if (token == JsonToken::Key || token == JsonToken::String) {
        append_quoted(text, stream.text().substr(0, max_bytes));
      } else if (token == JsonToken::Number) {
        text += stream.text().substr(0, max_bytes);
      } else {
        text += kTokenTexts[static_cast<size_t>(token)];
      }
      if (token == JsonToken::Key) text += ':';
      first = token == JsonToken::Key || token == JsonToken::BeginObject ||
              token == JsonToken::BeginArray;
    }
    if (stream.depth() <= outside && token != JsonToken::Key) break;
  }
  if (text.size() > max_bytes) {
    text.resize(max_bytes);
    text += "...";
  }
  return text;
}

}  // namespace moonshard
