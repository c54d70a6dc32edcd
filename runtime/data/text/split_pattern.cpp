#include "runtime/data/text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/utf8.h"

namespace moonshard::data {

const char* const kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
// A match of a sane pattern takes a few steps per byte; a hostile one doubles them with every byte.
constexpr uint32_t kMatchSteps = 10'000'000;
constexpr uint32_t kStepsPerByte = 16;
constexpr uint32_t kHeapKiB = 64 << 10;

// Unicode's White_Space and word characters. PCRE2's own \s also has U+180E, its \w lacks marks.
constexpr std::string_view kSpace = "\\t-\\r\\x{85}\\p{Z}";
constexpr std::string_view kWord = "\\p{L}\\p{M}\\p{N}\\p{Pc}";

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        open_bracket();
      } else if (c == ']' && in_class_) {
        in_class_ = false;
        copy(1);
      } else if (in_class_) {
        if (rest().starts_with("&&")) fail("'&&' inside [ ]");
        copy(1);
      } else if (c == '(') {
        group();
      } else if (c == '}' && next_is('+')) {
        fail("'}+'");
      } else if (c == '}' && next_is('?') && counts_exactly()) {
        fail("'?' behind a fixed count");  // lazy in one, once or not at all in the other
      } else if (rest().starts_with("{,")) {
        fail("'{,'");  // a text in one, a count from 0 in the other
      } else if (c == '^' || c == '$') {
        fail("^ and $");  // ends of lines in one, of the text in the other
      } else {
        copy(1);
      }
    }
    return std::move(result_);
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }
  bool next_is(char c) const { return at_ + 1 < pattern_.size() && pattern_[at_ + 1] == c; }
  // Whether the braces that end here have one number.
  bool counts_exactly() const {
    const size_t begin = pattern_.rfind('{', at_);
    return begin != std::string_view::npos &&
           pattern_.substr(begin, at_ - begin).find(',') == std::string_view::npos;
  }
  void copy(size_t count) {
    result_ += pattern_.substr(at_, count);
    at_ += count;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw IoError(fmt::format(
        "{}: expected a pattern of groups, classes, \\p{{…}}, \\s, \\w, \\d and quantifiers, got "
        "{} at byte {} of {}; this pattern is not supported",
        where_, what, at_, in_quotes(pattern_)));
  }

  void open_bracket() {
    if (in_class_) fail("'[' inside [ ]");
    in_class_ = true;
    copy(next_is('^') ? 2 : 1);
    if (rest().starts_with("]")) fail("an empty [ ]");
  }

  void group() {
    if (next_is('*')) fail("'(*'");  // PCRE2's own verbs
    if (!next_is('?')) return copy(1);
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (rest().starts_with(known)) return copy(known.size());
    }
    fail(fmt::format("the group '{}'", rest().substr(0, 4)));
  }

  void set(std::string_view characters, bool negative) {
    if (in_class_ && negative) fail("a negative class such as \\S inside [ ]");
    if (in_class_) {
      result_ += characters;
    } else {
      result_ += fmt::format("[{}{}]", negative ? "^" : "", characters);
    }
    at_ += 2;
  }

  void escape() {
    if (at_ + 1 >= pattern_.size()) fail("a lone backslash at the end");
    const char c = pattern_[at_ + 1];
    if (c == 's' || c == 'S') return set(kSpace, c == 'S');
    if (c == 'w' || c == 'W') return set(kWord, c == 'W');
    if (c == 'd' || c == 'D') return set("\\p{Nd}", c == 'D');
    const bool is_property = c == 'p' || c == 'P';
    if (is_property || (c == 'x' && at_ + 2 < pattern_.size() && pattern_[at_ + 2] == '{')) {
      const size_t end = pattern_.find('}', at_);
      if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || end == std::string_view::npos)
        fail("\\p or \\x without {…}");
      return copy(end + 1 - at_);
    }
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_digit = c >= '0' && c <= '9';
    if ((is_letter && std::strchr("rntfv", c) == nullptr) || is_digit)
      fail(fmt::format("'\\{}'", c));
    if (c == 'v') {  // any vertical space in PCRE2
      result_ += "\\x0b";
      at_ += 2;
      return;
    }
    if (static_cast<unsigned char>(c) >= 0x80) {  // no meaning of its own: the character itself
      ++at_;
      return copy(1);
    }
    copy(2);
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string result_;
};

}  // namespace

std::string translated_pattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

struct SplitPattern::Compiled {
  pcre2_code* code = nullptr;
  bool fast = false;  ///< compiled to machine code
  ~Compiled() { pcre2_code_free(code); }
};

namespace {

// What one call of split needs; it cannot be shared between threads.
struct Match {
  explicit Match(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 << 10, 1 << 20, nullptr)) {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_heap_limit(context, kHeapKiB);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Match() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

SplitPattern::SplitPattern(std::string_view pattern, const std::string& where)
    : compiled_(std::make_unique<Compiled>()), where_(where) {
  if (pattern.empty() || pattern.size() > kMaxPatternBytes || first_invalid_utf8(pattern)) {
    throw IoError(fmt::format("{}: expected a pattern of 1 to {} bytes of UTF-8, got {} bytes",
                              where, kMaxPatternBytes, pattern.size()));
  }
  const std::string own = translated_pattern(pattern, where);
  int error = 0;
  PCRE2_SIZE position = 0;
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(own.data()), own.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &position, nullptr);
  if (compiled_->code == nullptr) {
    throw IoError(fmt::format("{}: expected a regular expression, got {}: {} at byte {}", where,
                              in_quotes(pattern), message_of(error), position));
  }
  compiled_->fast = pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE) == 0;
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;

void SplitPattern::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  Match match(compiled_->code);
  const size_t most = std::min<size_t>(text.size(), (UINT32_MAX - kMatchSteps) / kStepsPerByte);
  const uint32_t steps = kMatchSteps + kStepsPerByte * static_cast<uint32_t>(most);
  pcre2_set_match_limit(match.context, steps);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t begin = 0, from = 0;  // of the piece between matches; where the search goes on
  size_t count = 0;
  while (from < text.size()) {
    if (++count % 4096 == 0) throw_if_interrupted();
    const int found = pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                  match.data, match.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      throw IoError(
          fmt::format("{}: expected a pattern that finds its match in {} steps, got one that does "
                      "not at byte {} of a text ({}); the pattern is not usable",
                      where_, steps, from, message_of(found)));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.data);
    if (range[1] <= range[0]) {  // an empty match cuts nothing
      from = std::max<size_t>(from, range[0]);
      if (from >= text.size()) break;
      from += static_cast<size_t>(read_character(text, from).length);
      continue;
    }
    if (range[0] > begin) pieces.push_back(text.substr(begin, range[0] - begin));
    pieces.push_back(text.substr(range[0], range[1] - range[0]));
    begin = from = range[1];
  }
  if (begin < text.size()) pieces.push_back(text.substr(begin));
}

}  // namespace moonshard::data
