#include "runtime/base/json.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include <fcntl.h>

#include "runtime/base/check.h"
#include "runtime/base/disk.h"
#include "runtime/base/files.h"
#include "runtime/base/reclaim.h"
#include "runtime/base/utf8.h"

namespace moonshard {
namespace {

// Walks the text without building anything: depth, string sizes and duplicate keys are judged here,
// so that hostile input costs no more memory than its nesting. nlohmann's own parser has no depth
// limit.
class LimitsChecker : public nlohmann::json_sax<Json> {
 public:
  explicit LimitsChecker(const JsonLimits& limits) : limits_(limits) {}
  std::string problem;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t value, const string_t& text) override {
    if (std::isfinite(value)) return true;
    return refuse(fmt::format("number {} does not fit a double", text.substr(0, 40)));
  }
  bool string(string_t& value) override { return check_string(value); }
  bool binary(binary_t&) override { return refuse("binary value"); }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return enter();
  }
  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) {
      return refuse(fmt::format("duplicate key '{}'", value.substr(0, 80)));
    }
    if (keys_.back().size() > limits_.max_keys)
      return refuse(fmt::format("an object of more than {} keys", limits_.max_keys));
    return check_string(value);
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 7: unexpected …": the last
    // part says it.
    std::string text = error.what();
    const size_t bracket = text.find("] ");
    if (bracket != std::string::npos) text = text.substr(bracket + 2);
    const size_t colon = text.find(": ");
    if (colon != std::string::npos) text = text.substr(colon + 2);
    return refuse(fmt::format("malformed at byte {}: {}", position, text));
  }

 private:
  bool enter() {
    if (++depth_ <= limits_.max_depth) return true;
    return refuse(fmt::format("nested deeper than {} levels", limits_.max_depth));
  }
  bool check_string(const string_t& value) {
    if (value.size() <= limits_.max_string_bytes) return true;
    return refuse(
        fmt::format("a string of {} bytes, allowed {}", value.size(), limits_.max_string_bytes));
  }
  bool refuse(const std::string& text) {
    if (problem.empty()) problem = text;
    return false;
  }

  JsonLimits limits_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;
};

using nlohmann::json;

// Judges the values while they are parsed, so that nothing large is built first.
class Judge {
 public:
  Judge(const ForeignLimits& limits, const std::string& where) : limits_(limits), where_(where) {}

  void see(int depth, json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (depth >= limits_.max_depth) {
          fail(fmt::format("at most {} levels of nesting, got more", limits_.max_depth));
        }
        keys_.resize(static_cast<size_t>(depth) + 2);
        keys_.back().clear();
        count();
        break;
      case json::parse_event_t::key:
        check_key(static_cast<size_t>(depth), parsed.get_ref<const std::string&>());
        break;
      case json::parse_event_t::value:
        count();
        break;
      default:
        break;
    }
  }

 private:
  void check_key(size_t depth, const std::string& key) {
    if (keys_.size() <= depth) keys_.resize(depth + 1);
    if (!keys_[depth].insert(key).second) {
      fail(fmt::format("each key once, got {} twice", in_quotes(key)));
    }
  }
  void count() {
    if (++values_ > limits_.max_values) {
      fail(fmt::format("at most {} values, got more", limits_.max_values));
    }
  }
  [[noreturn]] void fail(const std::string& text) const {
    throw IoError(fmt::format("{}: expected {}; the file is damaged or foreign", where_, text));
  }

  const ForeignLimits& limits_;
  const std::string& where_;
  size_t values_ = 0;
  std::vector<std::set<std::string>> keys_;  ///< of the open object at each depth
};

}  // namespace

namespace {

// Empty for good text. Apart from the throw below: an exception passes no frame of the JSON
// library, whose tables of clean-ups are long.
[[gnu::noinline]] std::string problem_of_json(std::string_view text, const JsonLimits& limits) {
  LimitsChecker checker(limits);
  Json::sax_parse(text.begin(), text.end(), &checker);
  return std::move(checker.problem);
}

void check_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    throw IoError(fmt::format("{}: expected at most {} bytes of JSON, got {}; it is not a record",
                              where, limits.max_bytes, text.size()));
  }
  // The parser takes a zero byte for the end of the text and would not look at what follows.
  const size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    throw IoError(
        fmt::format("{}: expected JSON, got a zero byte at byte {}; the file is damaged or foreign",
                    where, zero + 1));
  }
  const std::string problem = problem_of_json(text, limits);
  if (!problem.empty()) {
    throw IoError(
        fmt::format("{}: expected JSON, got {}; the file is damaged or foreign", where, problem));
  }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  check_json(text, where, limits);
  return Json::parse(text.begin(), text.end());
}

Json parse_json_list(std::string_view text, const std::string& where, const std::string& list,
                     const std::function<void(Json&&)>& take, const JsonLimits& limits) {
  check_json(text, where, limits);
  std::string key;
  bool is_in_list = false;
  return Json::parse(text.begin(), text.end(),
                     [&](int depth, Json::parse_event_t event, Json& parsed) {
                       if (depth == 1 && event == Json::parse_event_t::key)
                         key = parsed.get_ref<const std::string&>();
                       if (depth == 1 && event == Json::parse_event_t::array_start)
                         is_in_list = key == list;
                       if (depth == 1 && event == Json::parse_event_t::array_end)
                         is_in_list = false;
                       if (depth != 2 || !is_in_list || event != Json::parse_event_t::object_end)
                         return true;
                       take(std::move(parsed));
                       return false;
                     });
}

std::string read_text_file(const std::filesystem::path& path, size_t max_bytes) {
  // Folders, pipes and devices are refused before they are opened: a pipe would block the reader.
  struct stat status {};
  if (disk().stat(path.c_str(), status) == 0 && !S_ISREG(status.st_mode)) {
    throw IoError(fmt::format("{}: cannot read: expected a file, got {}", path.string(),
                              S_ISDIR(status.st_mode) ? "a folder" : "a pipe or device"));
  }
  const auto fail = [&] {
    throw IoError(fmt::format("{}: cannot read: {}", path.string(), std::strerror(errno)));
  };
  const Descriptor file(open_or_reclaim(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) fail();
  std::string text;
  char buffer[65536];
  while (true) {  // some files of the system's do not tell their size
    const ssize_t got =
        disk().pread(file.number(), buffer, sizeof buffer, static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail();
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > max_bytes) {
      throw IoError(fmt::format("{}: expected at most {} bytes, got more; it is not a record",
                                path.string(), max_bytes));
    }
  }
  return text;
}

Json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_text_file(path, limits.max_bytes), path.string(), limits);
}

namespace {

// Replacing bad UTF-8 keeps a record writable whatever a log line in it contained.
std::string on_one_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Lists of numbers and words stay on one line: a record has thousands of samples.
void write_value(std::string& text, const Json& value, size_t depth) {
  const bool is_flat =
      !value.is_object() &&
      (!value.is_array() || std::none_of(value.begin(), value.end(),
                                         [](const Json& entry) { return entry.is_structured(); }));
  if (is_flat || value.empty()) {
    text += on_one_line(value);
    return;
  }
  const std::string indent((depth + 1) * 2, ' ');
  text += value.is_object() ? "{" : "[";
  bool first = true;
  for (auto entry = value.begin(); entry != value.end(); ++entry) {
    text += (first ? "\n" : ",\n") + indent;
    first = false;
    if (value.is_object()) text += on_one_line(Json(entry.key())) + ": ";
    write_value(text, *entry, depth + 1);
  }
  text += "\n" + std::string(depth * 2, ' ') + (value.is_object() ? "}" : "]");
}

}  // namespace

std::string one_line(const Json& value) {
  return on_one_line(value);
}

std::string to_text(const Json& value) {
  std::string text;
  write_value(text, value, 0);
  return text + "\n";
}

double number_or(const Json& object, const char* key, double fallback) {
  if (!object.is_object()) return fallback;
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : fallback;
}

std::string string_or(const Json& object, const char* key, const std::string& fallback) {
  if (!object.is_object()) return fallback;
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : fallback;
}

std::string read_foreign_text(const std::filesystem::path& path, const ForeignLimits& limits) {
  const ReadOnlyFile file = ReadOnlyFile::open(path);
  const auto size = static_cast<size_t>(file.size());
  if (size > limits.max_bytes) {
    throw IoError(fmt::format("{}: expected at most {} bytes, got {}; it is another kind of file",
                              path.string(), limits.max_bytes, size));
  }
  std::string text(size, '\0');
  file.read_at(0, text.data(), file.size(), "JSON");
  return text;
}

json read_foreign_json(const std::filesystem::path& path, const ForeignLimits& limits) {
  return parse_foreign_json(read_foreign_text(path, limits), path.string(), limits);
}

json parse_foreign_json(const std::string& text, const std::string& where,
                        const ForeignLimits& limits) {
  // The JSON library takes a zero byte for the end of the text and would ignore the rest.
  const size_t zero = text.find('\0');
  Judge judge(limits, where);
  json value = json::value_t::discarded;
  size_t position = zero;
  if (zero == std::string::npos) {
    try {
      value = json::parse(text, [&](int depth, json::parse_event_t event, json& parsed) {
        judge.see(depth, event, parsed);
        return true;
      });
    } catch (const json::parse_error& error) {
      position = error.byte;
    } catch (const json::exception&) {
      position = 0;  // a number that fits no double
    }
  }
  if (!value.is_object()) {
    throw IoError(
        fmt::format("{}: expected a JSON object, got {}; the file is damaged or foreign", where,
                    value.is_discarded() ? fmt::format("something else at byte {}", position)
                                         : fmt::format("a JSON {}", value.type_name())));
  }
  return value;
}

}  // namespace moonshard
