#include "runtime/weights/foreign_json.h"

#include <set>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/read_file.h"
#include "runtime/weights/labels.h"

namespace moonshard::weights {
namespace {

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

json read_foreign_json(const std::filesystem::path& path, const ForeignLimits& limits) {
  const std::string where = path.string();
  const ReadOnlyFile file = ReadOnlyFile::open(path);
  const auto size = static_cast<size_t>(file.size());
  if (size > limits.max_bytes) {
    throw IoError(fmt::format("{}: expected at most {} bytes, got {}; it is another kind of file",
                              where, limits.max_bytes, size));
  }
  std::string text(size, '\0');
  file.read_at(0, text.data(), file.size(), "JSON");
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

}  // namespace moonshard::weights
