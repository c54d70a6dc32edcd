// A filter as Lua, for "copy as script": the same answers on the points that ms.load returns.
#include <fmt/format.h>

#include "viewer/data/filter.h"

namespace moonshard::viewer {
namespace {

using Kind = FilterNode::Kind;
using Field = FilterNode::Field;
using Relation = FilterNode::Relation;

// Wildcards as a Lua pattern; letters stay in lower case.
std::string lua_pattern(std::string_view text, bool whole) {
  std::string result = whole ? "^" : "";
  for (const char c : text) {
    if (c == '*') {
      result += ".*";
    } else if (c == '?') {
      result += '.';
    } else {
      if (std::string_view("^$()%.[]+-").find(c) != std::string_view::npos) result += '%';
      result += c;
    }
  }
  return result + (whole ? "$" : "");
}

bool is_name(std::string_view key) {
  if (key.empty() || (key[0] >= '0' && key[0] <= '9')) return false;
  for (const char c : key)
    if (!(c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
      return false;
  for (const char* word : {"and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
                           "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
                           "repeat",   "return", "then", "true", "until",  "while"})
    if (key == word) return false;
  return true;
}

std::string value_of(const FilterNode& node) {
  static constexpr const char* kPlaces[] = {// in the order of Field
                                            "point.options", "point.metrics",
                                            "point.status",  "(point.run or \"\")",
                                            "point.id",      "(point.error or \"\")"};
  const std::string place = kPlaces[static_cast<size_t>(node.field)];
  if (node.field > Field::Metric) return place;
  return is_name(node.key) ? place + "." + node.key : place + "[" + lua_text(node.key) + "]";
}

class Writer {
 public:
  explicit Writer(const Filter& filter) : filter_(filter) {}

  std::string body() {
    const std::string condition = filter_.nodes.empty() ? "true" : term(filter_.nodes.size() - 1);
    std::string text = "-- filter: ";
    for (const char c : filter_.source) text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    text += '\n';
    if (names_run_)
      text += "-- point.run: the name of its run folder; set it before this is called\n";
    if (uses_like_)
      text +=
          "local function shown(value)\n"
          "  if type(value) == \"number\" then return (\"%.14g\"):format(value) end\n"
          "  return tostring(value):lower()\n"
          "end\n"
          "local function like(value, pattern)\n"
          "  if type(value) == \"boolean\" and (value and \"yes\" or \"no\"):find(pattern) then "
          "return true end\n"
          "  return value ~= nil and shown(value):find(pattern) ~= nil\n"
          "end\n";
    if (uses_number_)
      text +=
          "local function number(value) return type(value) == \"number\" and value or 0 / 0 end\n";
    if (uses_word_) {
      text += "local function word(pattern)\n";
      text +=
          "  if like(point.run or \"\", pattern) or like(point.status, pattern) or like(point.id, "
          "pattern) or like(point.error, pattern) then\n    return true\n  end\n";
      text += "  for _, axis in ipairs {";
      for (size_t i = 0; i < filter_.axes.size(); ++i)
        text += (i > 0 ? ", " : " ") + lua_text(filter_.axes[i]);
      text += " } do\n    if like(point.options[axis], pattern) then return true end\n  end\n";
      text += "  return false\nend\n";
    }
    return text + "return " + condition + "\n";
  }

 private:
  std::string term(size_t index) {
    const FilterNode& node = filter_.nodes[index];
    if (node.kind == Kind::And || node.kind == Kind::Or) {
      const char* join = node.kind == Kind::And ? " and " : " or ";
      return "(" + term(node.left) + join + term(node.right) + ")";
    }
    if (node.kind == Kind::Not) return "not " + term(node.left);
    if (node.kind == Kind::Has) return has(node);
    if (node.kind == Kind::Compare) return comparison(node);
    uses_like_ = uses_word_ = true;
    return "word(" + lua_text(lua_pattern(node.text, false)) + ")";
  }

  std::string has(const FilterNode& node) {
    if (node.field == Field::Error) return "((point.error or \"\") ~= \"\")";
    if (node.field > Field::Metric) return "true";
    const std::string value = value_of(node);  // NaN does not equal itself
    return "(" + value + " ~= nil and " + value + " == " + value + ")";
  }

  std::string comparison(const FilterNode& node) {
    if (node.field == Field::Run) names_run_ = true;
    const std::string value = value_of(node);
    static constexpr const char* kOrders[] = {"==", "~=", "<", "<=", ">", ">="};
    if (node.relation > Relation::NotEqual) {
      uses_number_ = true;
      return fmt::format("(number({}) {} {:.17g})", value,
                         kOrders[static_cast<size_t>(node.relation)], node.number);
    }
    uses_like_ = true;
    std::string equal = fmt::format("like({}, {})", value, lua_text(lua_pattern(node.text, true)));
    // A number by its value; a text that looks like one by its letters.
    if (!std::isnan(node.number) && node.field <= Field::Metric)
      equal = fmt::format("({} == {:.17g} or type({}) ~= \"number\" and {})", value, node.number,
                          value, equal);
    return node.relation == Relation::Equal ? equal : "not " + equal;
  }

  const Filter& filter_;
  bool uses_like_ = false, uses_number_ = false, uses_word_ = false, names_run_ = false;
};

}  // namespace

std::string to_lua(const Filter& filter) {
  return Writer(filter).body();
}

std::string lua_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\{:03d}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace moonshard::viewer
