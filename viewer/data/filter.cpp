#include "viewer/data/filter.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>

#include <fmt/format.h>

#include "runtime/base/options.h"

namespace moonshard::viewer {
namespace {

using Kind = FilterNode::Kind;
using Field = FilterNode::Field;
using Relation = FilterNode::Relation;

constexpr size_t kMostNodes = 1000;  // also bounds the recursion over the tree
constexpr size_t kMostParentheses = 100;

struct Token {
  enum class Type { Word, Quoted, Comparison, Open, Close, End };
  Type type = Type::End;
  std::string text;
  size_t begin = 0, end = 0;
};

struct Unit {
  const char* name;
  enum class Of { Bytes, Time, Count } of;
  double size;  ///< bytes, microseconds, or how many
};
constexpr std::array<Unit, 14> kUnits = {{{"B", Unit::Of::Bytes, 1},
                                          {"KiB", Unit::Of::Bytes, 1024},
                                          {"MiB", Unit::Of::Bytes, 1048576},
                                          {"GiB", Unit::Of::Bytes, 1073741824},
                                          {"TiB", Unit::Of::Bytes, 1099511627776},
                                          {"KB", Unit::Of::Bytes, 1e3},
                                          {"MB", Unit::Of::Bytes, 1e6},
                                          {"GB", Unit::Of::Bytes, 1e9},
                                          {"us", Unit::Of::Time, 1},
                                          {"ms", Unit::Of::Time, 1e3},
                                          {"s", Unit::Of::Time, 1e6},
                                          {"k", Unit::Of::Count, 1e3},
                                          {"M", Unit::Of::Count, 1e6},
                                          {"G", Unit::Of::Count, 1e9}}};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

const Unit* find_unit(std::string_view name) {
  for (const Unit& unit : kUnits)
    if (name == unit.name) return &unit;
  for (const Unit& unit : kUnits)  // "gib" is clear enough; "m" and "g" are not
    if (unit.of == Unit::Of::Bytes && lower(name) == lower(unit.name)) return &unit;
  return nullptr;
}

// The unit that the values of a key have, by the end of its name.
Unit unit_of_key(std::string_view key) {
  const auto ends = [&](std::string_view end) { return key.ends_with(end); };
  if (ends("_bytes")) return {"bytes", Unit::Of::Bytes, 1};
  if (ends("_mb")) return {"MiB", Unit::Of::Bytes, 1048576};
  if (ends("_gb")) return {"GiB", Unit::Of::Bytes, 1073741824};
  if (ends("_per_s")) return {"a second", Unit::Of::Count, 1};
  if (ends("_us")) return {"us", Unit::Of::Time, 1};
  if (ends("_ms")) return {"ms", Unit::Of::Time, 1e3};
  if (ends("_s")) return {"s", Unit::Of::Time, 1e6};
  return {"", Unit::Of::Count, 1};
}

[[noreturn]] void fail(const Token& at, std::string message) {
  throw FilterError{"filter: " + std::move(message), at.begin, at.end};
}

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  size_t at = 0;
  const auto add = [&](Token::Type type, size_t length) {
    tokens.push_back({type, std::string(text.substr(at, length)), at, at + length});
    at += length;
  };
  while (at < text.size()) {
    const char c = text[at];
    if (static_cast<unsigned char>(c) <= ' ') {
      ++at;
    } else if (c == '(' || c == ')') {
      add(c == '(' ? Token::Type::Open : Token::Type::Close, 1);
    } else if (c == '=' || c == '<' || c == '>' || c == '!' || c == '~') {
      const bool two = at + 1 < text.size() && text[at + 1] == '=';
      Token bad{Token::Type::Comparison, "", at, at + 1};
      if (!two && (c == '!' || c == '~'))
        fail(bad, fmt::format("expected '{}=', got '{}'; 'not' turns a term around", c, c));
      add(Token::Type::Comparison, two ? 2 : 1);
    } else if (c == '"' || c == '\'') {
      const size_t end = text.find(c, at + 1);
      if (end == std::string_view::npos)
        fail({Token::Type::Quoted, "", at, text.size()},
             fmt::format("expected a closing {}, got the end", c));
      tokens.push_back(
          {Token::Type::Quoted, std::string(text.substr(at + 1, end - at - 1)), at, end + 1});
      at = end + 1;
    } else {
      size_t end = at;
      while (end < text.size() && static_cast<unsigned char>(text[end]) > ' ' &&
             std::string_view("()=<>!~\"'").find(text[end]) == std::string_view::npos)
        ++end;
      add(Token::Type::Word, end - at);
    }
  }
  tokens.push_back({Token::Type::End, "the end", text.size(), text.size()});
  return tokens;
}

class Parser {
 public:
  Parser(std::string_view text, const FilterKeys& keys) : keys_(keys), tokens_(tokens_of(text)) {}

  std::vector<FilterNode> parse() {
    if (now().type == Token::Type::End) return {};
    parse_or();
    if (now().type != Token::Type::End)
      fail(now(), "expected '(' before ')', got none; take it away, or open it");
    return std::move(nodes_);
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is_word(const char* word) const {
    return now().type == Token::Type::Word && lower(now().text) == word;
  }
  bool begins_term() const {
    return now().type != Token::Type::End && now().type != Token::Type::Close && !is_word("or");
  }

  size_t add(FilterNode node) {
    if (nodes_.size() >= kMostNodes)
      fail(now(), fmt::format("expected at most {} terms, got more", kMostNodes));
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }
  size_t join(Kind kind, size_t left, size_t right) {
    return add({.kind = kind, .left = left, .right = right});
  }

  size_t parse_or() {
    size_t left = parse_and();
    while (is_word("or")) {
      ++at_;
      left = join(Kind::Or, left, parse_and());
    }
    return left;
  }

  size_t parse_and() {
    size_t left = parse_not();
    while (begins_term()) {
      if (is_word("and")) ++at_;
      left = join(Kind::And, left, parse_not());
    }
    return left;
  }

  size_t parse_not() {
    bool negative = false;
    for (; is_word("not"); ++at_) negative = !negative;
    const size_t term = parse_term();
    return negative ? join(Kind::Not, term, term) : term;
  }

  size_t parse_term() {
    const Token token = now();
    if (token.type == Token::Type::Open) {
      if (++depth_ > kMostParentheses)
        fail(token, fmt::format("expected at most {} nested parentheses", kMostParentheses));
      ++at_;
      const size_t inner = parse_or();
      if (now().type != Token::Type::Close)
        fail(token, "expected ')' for this '(', got the end; close it");
      ++at_;
      --depth_;
      return inner;
    }
    if (token.type == Token::Type::Comparison)
      fail(token, fmt::format("expected an option or a metric before '{}', got none; for example "
                              "mode = ghost",
                              token.text));
    if (token.type == Token::Type::End || token.type == Token::Type::Close || is_word("and") ||
        is_word("or"))
      fail(token, fmt::format("expected a word or a comparison, got '{}'", token.text));
    if (is_word("has") && next().type == Token::Type::Open) return parse_has();
    if (next().type == Token::Type::Comparison) return parse_comparison();
    ++at_;
    return add({.text = lower(token.text)});
  }

  size_t parse_has() {
    at_ += 2;
    FilterNode node = named(now(), "in has(…)");
    node.kind = Kind::Has;
    ++at_;
    if (now().type != Token::Type::Close)
      fail(now(), fmt::format("expected ')' after has({}, got '{}'", node.key, now().text));
    ++at_;
    return add(std::move(node));
  }

  size_t parse_comparison() {
    FilterNode node = named(now(), fmt::format("before '{}'", next().text));
    node.kind = Kind::Compare;
    ++at_;
    const std::string relation = now().text;
    node.relation = relation == "<"                        ? Relation::Less
                    : relation == "<="                     ? Relation::LessEqual
                    : relation == ">"                      ? Relation::Greater
                    : relation == ">="                     ? Relation::GreaterEqual
                    : relation == "!=" || relation == "~=" ? Relation::NotEqual
                                                           : Relation::Equal;
    ++at_;
    const Token value = now();
    if (value.type != Token::Type::Word && value.type != Token::Type::Quoted)
      fail(value,
           fmt::format("expected a value after '{} {}', got '{}'", node.key, relation, value.text));
    ++at_;
    node.text = lower(value.text);
    if (value.type == Token::Type::Word) read_number(value, node);
    const bool orders = node.relation != Relation::Equal && node.relation != Relation::NotEqual;
    if (orders && std::isnan(node.number))
      fail(value, fmt::format("expected a number after '{} {}', got '{}'", node.key, relation,
                              value.text));
    return add(std::move(node));
  }

  void read_number(const Token& value, FilterNode& node) {
    double number = 0;
    const char* end = value.text.data() + value.text.size();
    const auto [rest, code] = std::from_chars(value.text.data(), end, number);
    if (code != std::errc() || !std::isfinite(number)) return;
    std::string_view unit_name(rest, static_cast<size_t>(end - rest));
    const Unit* unit = find_unit(unit_name);
    if (unit_name.empty() && now().type == Token::Type::Word && now().text.size() > 1 &&
        next().type != Token::Type::Comparison && find_unit(now().text) != nullptr) {
      unit = find_unit(now().text);  // "10 GiB"
      ++at_;
    }
    if (unit == nullptr) {
      if (unit_name.empty()) node.number = number;
      return;  // other letters: a text such as "8x7b"
    }
    const Unit own = unit_of_key(node.key);
    if (unit->of == Unit::Of::Count) {
      node.number = number * unit->size;
    } else if (unit->of == own.of) {
      node.number = number * unit->size / own.size;
    } else if (node.relation != Relation::Equal && node.relation != Relation::NotEqual) {
      fail(value, fmt::format("expected a number {} for {}, got '{}'",
                              *own.name == '\0' ? "without such a unit"
                                                : fmt::format("in {} or the like", own.name),
                              node.key, value.text));
    }
  }

  FilterNode named(const Token& token, const std::string& where) {
    const auto in = [&](const std::vector<std::string>& list) {
      return std::ranges::find(list, token.text) != list.end();
    };
    FilterNode node;
    node.key = token.text;
    if (token.type != Token::Type::Word && token.type != Token::Type::Quoted)
      fail(token, fmt::format("expected an option or a metric {}, got '{}'", where, token.text));
    if (in(keys_.options)) return node;
    node.field = Field::Metric;
    if (in(keys_.metrics)) return node;
    const std::array<std::pair<const char*, Field>, 4> heads = {{{"status", Field::Status},
                                                                 {"run", Field::Run},
                                                                 {"id", Field::Id},
                                                                 {"error", Field::Error}}};
    std::vector<std::string> all = keys_.options;
    all.insert(all.end(), keys_.metrics.begin(), keys_.metrics.end());
    for (const auto& [name, field] : heads) {
      node.field = field;
      if (token.text == name) return node;
      all.emplace_back(name);
    }
    // Looking for the nearest takes as many steps as both have letters, and names are untrusted.
    std::erase_if(all, [](const std::string& name) { return name.size() > 64; });
    fail(token, fmt::format("expected an option or a metric {}, got '{}'{}", where, token.text,
                            did_you_mean(lower(token.text), all,
                                         "; the table's columns can show which there are")));
  }

  const FilterKeys& keys_;
  std::vector<Token> tokens_;
  std::vector<FilterNode> nodes_;
  size_t at_ = 0, depth_ = 0;
};

}  // namespace

FilterKeys filter_keys(const std::vector<const RunData*>& runs) {
  FilterKeys keys;
  // Known whether or not a run has them, so that has(epsilon) is never an unknown key.
  keys.metrics = {"epsilon", "median_time_ms", "peak_memory_bytes"};
  std::unordered_set<std::string> options, axes;
  std::unordered_set<std::string> metrics(keys.metrics.begin(), keys.metrics.end());
  const auto add = [](const std::vector<std::string>& names, std::unordered_set<std::string>& seen,
                      std::vector<std::string>& list) {
    for (const std::string& name : names)
      if (seen.insert(name).second) list.push_back(name);
  };
  for (const RunData* run : runs) {
    add(run->options.keys, options, keys.options);
    add(run->metrics.keys, metrics, keys.metrics);
    add(run->axes, axes, keys.axes);
  }
  return keys;
}

ParsedFilter parse_filter(std::string_view text, const FilterKeys& keys) {
  ParsedFilter parsed;
  parsed.filter.source = text;
  parsed.filter.axes = keys.axes;
  try {
    parsed.filter.nodes = Parser(text, keys).parse();
  } catch (FilterError& error) {
    parsed.error = std::move(error);
  }
  return parsed;
}

}  // namespace moonshard::viewer
