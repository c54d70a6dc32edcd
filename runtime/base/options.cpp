#include "runtime/base/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/ranges.h>

#include "runtime/base/check.h"

namespace moonshard {
namespace {

std::string normalized(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

// Letters added, left out, replaced, or two neighbours swapped, each one step.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> steps(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        steps[i][j] = i + j;
        continue;
      }
      const size_t replaced = steps[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      steps[i][j] = std::min({steps[i - 1][j] + 1, steps[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        steps[i][j] = std::min(steps[i][j], steps[i - 2][j - 2] + 1);
      }
    }
  }
  return steps[a.size()][b.size()];
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return value.is_string() ? "'" + text.substr(1, text.size() - 2) + "'" : text;
}

std::string number_text(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value)
             ? fmt::format("{}", static_cast<int64_t>(value))
             : fmt::format("{}", value);
}

// 2^53: above it a double, the only number Lua has, no longer holds every integer.
constexpr double kLargestExactInteger = 9007199254740992.0;

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestName = 64;  // nothing of ours is longer, and the search is quadratic
  std::string best;
  if (name.size() > kLongestName) return best;
  size_t best_distance = std::max<size_t>(2, name.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates,
                         const std::string& otherwise) {
  const std::string near = nearest_name(name, candidates);
  return near.empty() ? otherwise : fmt::format("; did you mean '{}'?", near);
}

void fail_unknown_name(const std::string& where, const std::string& name,
                       const std::vector<std::string>& names) {
  throw UsageError(fmt::format("{}: expected one of {}, got '{}'{}", where, fmt::join(names, ", "),
                               name, did_you_mean(name, names)));
}

std::string describe_type(const Option& option) {
  switch (option.type) {
    case OptionType::Integer:
      return "int";
    case OptionType::Real:
      return "number";
    case OptionType::Boolean:
      return "true | false";
    case OptionType::Text:
      return "text";
    case OptionType::TextList:
      return "texts";
    case OptionType::Choice:
      return fmt::format("{}", fmt::join(option.words(), " | "));
  }
  return "";
}

std::vector<std::string> OptionSchema::names() const {
  std::vector<std::string> result;
  for (const Option& option : options_) result.push_back(option.name);
  return result;
}

const Option* OptionSchema::find(std::string_view name) const {
  const std::string wanted = normalized(name);
  for (const Option& option : options_) {
    const auto& aliases = option.aliases;
    if (option.name == wanted ||
        std::find(aliases.begin(), aliases.end(), wanted) != aliases.end()) {
      return &option;
    }
  }
  return nullptr;
}

bool OptionSchema::is_also_known(std::string_view name) const {
  return std::find(also_known_.begin(), also_known_.end(), name) != also_known_.end();
}

void OptionSchema::fail_unknown(std::string_view name) const {
  std::vector<std::string> known = also_known_;
  for (const Option& option : options_) known.push_back(option.name);
  std::vector<std::string> candidates = known;
  for (const Option& option : options_) {
    candidates.insert(candidates.end(), option.aliases.begin(), option.aliases.end());
  }
  throw UsageError(fmt::format("{}: unknown option '{}'{} known: {}", where_, name.substr(0, 60),
                               did_you_mean(normalized(name), candidates, ";"),
                               fmt::join(known, ", ")));
}

Json OptionSchema::checked(const Option& option, const Json& value) const {
  const auto refuse = [&](const std::string& wanted) {
    throw UsageError(fmt::format("{}: option '{}': expected {}, got {}; {}", where_, option.name,
                                 wanted, shown(value), option.doc));
  };
  switch (option.type) {
    case OptionType::Integer: {
      if (!value.is_number()) refuse("an integer");
      const double number = value.get<double>();
      if (value.is_number_float() &&
          (number != std::floor(number) || std::abs(number) > kLargestExactInteger)) {
        refuse("an integer that a double holds exactly");
      }
      if (number < option.min || number > option.max) {
        refuse(fmt::format("an integer from {} to {}", number_text(option.min),
                           number_text(option.max)));
      }
      return value.is_number_float() ? Json(static_cast<int64_t>(number)) : value;
    }
    case OptionType::Real: {
      if (!value.is_number() || !std::isfinite(value.get<double>())) refuse("a finite number");
      const double number = value.get<double>();
      if (number < option.min || number > option.max) {
        refuse(fmt::format("a number from {} to {}", number_text(option.min),
                           number_text(option.max)));
      }
      return Json(number);
    }
    case OptionType::Boolean:
      if (!value.is_boolean()) refuse("true or false");
      return value;
    case OptionType::Text:
      if (!value.is_string()) refuse("a text");
      return value;
    case OptionType::TextList:
      if (!value.is_array() || !std::all_of(value.begin(), value.end(),
                                            [](const Json& text) { return text.is_string(); }))
        refuse("a list of texts");
      return value;
    case OptionType::Choice: {
      // true and false are words, too: of choices like yes | no | auto.
      if (!value.is_string() && !value.is_boolean()) refuse("one of " + describe_type(option));
      std::string word = value.is_boolean() ? value.dump() : value.get<std::string>();
      const std::vector<std::string> words = option.words();
      const auto aliases = option.live_aliases ? option.live_aliases() : option.value_aliases;
      if (const auto other = aliases.find(word); other != aliases.end()) word = other->second;
      if (std::find(words.begin(), words.end(), word) == words.end()) {
        if (value.is_boolean()) refuse("one of " + describe_type(option));
        throw UsageError(fmt::format("{}: option '{}': expected one of {}, got '{}'{}", where_,
                                     option.name, fmt::join(words, ", "), word.substr(0, 60),
                                     did_you_mean(word, words, "; " + option.doc)));
      }
      return Json(word);
    }
  }
  return value;
}

void OptionSchema::assign(void* target, std::string_view name, const Json& value) const {
  const Option* option = find(name);
  if (option == nullptr) fail_unknown(name);
  option->write(target, checked(*option, value));
}

void OptionSchema::assign_text(void* target, std::string_view name, const std::string& text) const {
  const Option* option = find(name);
  if (option == nullptr) fail_unknown(name);
  Json value = text;
  if (option->type == OptionType::Integer || option->type == OptionType::Real) {
    char* end = nullptr;
    errno = 0;
    const long long whole = std::strtoll(text.c_str(), &end, 10);
    if (!text.empty() && *end == '\0' && errno == 0) {
      value = static_cast<int64_t>(whole);
    } else {
      const double number = std::strtod(text.c_str(), &end);
      if (!text.empty() && *end == '\0') value = number;
    }
  } else if (option->type == OptionType::TextList) {
    value = option->read(target);
    value.push_back(text);
  } else if (option->type == OptionType::Boolean) {
    if (text == "true" || text == "1" || text == "yes" || text == "on") value = true;
    if (text == "false" || text == "0" || text == "no" || text == "off") value = false;
  }
  option->write(target, checked(*option, value));
}

void OptionSchema::assign_all(void* target, const Json& values) const {
  MS_CHECK(values.is_object(),
           "{}: expected a table of named options, got {}; write {{ name = value }}", where_,
           values.type_name());
  std::map<std::string, std::string> given;  // option -> the spelling that was used for it
  for (const auto& [name, value] : values.items()) {
    if (const Option* option = find(name)) {
      const auto [before, is_new] = given.emplace(option->name, name);
      MS_CHECK(is_new,
               "{}: option '{}': expected one value, got two, as '{}' and as '{}'; leave one out",
               where_, option->name, before->second, name);
    }
    assign(target, name, value);
  }
}

void OptionSchema::refuse_unused(const void* source, const void* recorded,
                                 const std::vector<std::string>& used,
                                 const std::string& user) const {
  for (const Option& option : options_) {
    if (std::find(used.begin(), used.end(), option.name) != used.end()) continue;
    MS_CHECK(option.read(source) == option.read(recorded),
             "{}: option '{}' means nothing to {}; leave it out", where_, option.name, user);
  }
}

Json OptionSchema::to_json(const void* source) const {
  Json result = Json::object();
  for (const Option& option : options_) result[option.name] = option.read(source);
  return result;
}

}  // namespace moonshard
