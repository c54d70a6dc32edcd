#include "runtime/data/text/documents.h"

#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"

namespace moonshard::data {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 256;
constexpr size_t kMaxKeys = 10'000;

// The value of \uXXXX at a position, or -1.
int escape_at(std::string_view text, size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return -1;
  int value = 0;
  for (size_t i = at + 2; i < at + 6; ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// The file's bytes for the JSON library, with what it needs to know for errors and limits.
class ByteFeed {
 public:
  ByteFeed(const std::filesystem::path& path, bool replace, Repairs& repairs)
      : stream_(path, replace, repairs), path_(path), replace_(replace), repairs_(repairs) {}

  bool at_end() {
    if (at_ < ready_) return false;
    refill();
    return at_ >= ready_;
  }
  char current() const { return buffer_[at_]; }
  void advance() {
    line_ += buffer_[at_] == '\n' ? 1 : 0;
    ++at_;
    if (++since_event_ > kMaxLineBytes)
      throw IoError(
          problem(fmt::format("values of at most {} bytes", kMaxLineBytes), "a longer one"));
  }
  void event() { since_event_ = 0; }
  int64_t line() const { return line_; }
  std::string problem(std::string_view expected, std::string_view got) const {
    return fmt::format("{}:{}: expected {}, got {}", path_.string(), line_, expected, got);
  }

 private:
  void refill() {
    buffer_.erase(0, at_);
    at_ = ready_ = 0;
    while (ready_ == 0) {
      const bool ended = !stream_.read(buffer_);
      ready_ = replace_ ? repair_surrogates(buffer_, 0, ended, repairs_) : buffer_.size();
      if (ended) break;
    }
  }

  TextStream stream_;
  const std::filesystem::path& path_;
  bool replace_;
  Repairs& repairs_;
  std::string buffer_;
  size_t at_ = 0, ready_ = 0, since_event_ = 0;
  int64_t line_ = 1;
};

class FeedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  explicit FeedIterator(ByteFeed* feed) : feed_(feed) {}
  char operator*() const { return feed_->current(); }
  FeedIterator& operator++() {
    feed_->advance();
    return *this;
  }
  FeedIterator operator++(int) {
    FeedIterator before = *this;
    ++*this;
    return before;
  }
  // Only ever compared with the end.
  bool operator==(const FeedIterator& other) const {
    return (feed_ == nullptr || feed_->at_end()) &&
           (other.feed_ == nullptr || other.feed_->at_end());
  }
  bool operator!=(const FeedIterator& other) const { return !(*this == other); }

 private:
  ByteFeed* feed_;
};

// Follows the events. A document is an object at the top, or one of the list at the top. What is
// wrong is said by false and a problem: an exception would have to pass the JSON library's frames,
// which costs many times what the parsing of a small file does.
class TextEvents : public nlohmann::json_sax<json> {
 public:
  TextEvents(ByteFeed& feed, const std::function<void(std::string&, int64_t)>& take)
      : feed_(feed), take_(take) {}

  int64_t documents() const { return documents_; }
  const std::string& problem() const { return problem_; }

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("true or false"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("bytes"); }
  bool string(string_t& text) override {
    feed_.event();
    if (!in_document() || !is_text_) return value("a text");
    is_text_ = false;
    has_text_ = true;
    take_(text, feed_.line());
    return true;
  }
  bool start_object(std::size_t) override {
    const bool begins = depth_ == 0 || (depth_ == 1 && list_);
    if (!begins) return open("an object");
    document_depth_ = depth_ + 1;
    has_text_ = is_text_ = false;
    keys_.clear();
    return open("");
  }
  bool key(string_t& name) override {
    feed_.event();
    if (!in_document()) return true;
    if (name.size() > 4096 || keys_.size() >= kMaxKeys)
      return refuse(fmt::format("at most {} keys of at most 4096 bytes", kMaxKeys), "more");
    if (!keys_.insert(name).second) return refuse("each key once", in_quotes(name) + " twice");
    is_text_ = name == "text";
    return true;
  }
  bool end_object() override {
    feed_.event();
    if (in_document()) {
      if (!has_text_) return refuse("an object with \"text\"", "one without");
      ++documents_;
      document_depth_ = 0;
    }
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ > 0) return open("a list");
    list_ = true;
    return open("");
  }
  bool end_array() override {
    feed_.event();
    --depth_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    // The library's own words, after its numbers.
    const std::string text = error.what();
    const size_t colon = text.find(": ");
    return refuse("JSON", in_quotes(colon == std::string::npos ? text : text.substr(colon + 2)));
  }

 private:
  bool in_document() const { return document_depth_ > 0 && depth_ == document_depth_; }
  // A value where a document or its text is expected is an error; elsewhere it is passed over.
  bool value(const char* what) {
    feed_.event();
    if (document_depth_ == 0) return refuse("an object with \"text\", or a list of such", what);
    if (in_document() && is_text_) return refuse("a text under \"text\"", what);
    return true;
  }
  bool open(const char* what) {
    if (*what != '\0' && !value(what)) return false;
    feed_.event();
    if (++depth_ > kMaxDepth)
      return refuse(fmt::format("at most {} levels of nesting", kMaxDepth), "more");
    return true;
  }
  bool refuse(std::string_view expected, std::string_view got) {
    problem_ = feed_.problem(expected, got);
    return false;
  }

  ByteFeed& feed_;
  const std::function<void(std::string&, int64_t)>& take_;
  std::set<std::string> keys_;  ///< of the document
  int depth_ = 0, document_depth_ = 0;
  bool list_ = false, is_text_ = false, has_text_ = false;
  int64_t documents_ = 0;
  std::string problem_;
};

// Apart, so that the throw below is in a small function.
[[gnu::noinline]] void parse(ByteFeed& feed, TextEvents& events) {
  json::sax_parse(FeedIterator(&feed), FeedIterator(nullptr), &events);
}

}  // namespace

size_t repair_surrogates(std::string& text, size_t from, bool ended, Repairs& repairs) {
  size_t at = from;
  while (true) {
    at = text.find('\\', at);
    if (at == std::string::npos) return text.size();
    if (!ended && at + 12 > text.size()) return at;
    const int value = escape_at(text, at);
    if (value < 0xD800 || value > 0xDFFF) {
      at = std::min(at + (value < 0 ? 2 : 6), text.size());
      continue;
    }
    const int next = value < 0xDC00 ? escape_at(text, at + 6) : -1;
    if (next >= 0xDC00 && next <= 0xDFFF) {
      at += 12;
      continue;
    }
    text.replace(at, 6, "\\uFFFD");
    ++repairs.replaced_characters;
    at += 6;
  }
}

int64_t read_json_texts(const std::filesystem::path& path, bool replace, Repairs& repairs,
                        const std::function<void(std::string& text, int64_t line)>& take) {
  ByteFeed feed(path, replace, repairs);
  TextEvents events(feed, take);
  parse(feed, events);
  if (!events.problem().empty()) throw IoError(events.problem());
  return events.documents();
}

}  // namespace moonshard::data
