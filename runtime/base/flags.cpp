#include "runtime/base/flags.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "runtime/base/check.h"

namespace moonshard {
namespace {

struct Flag {
  std::string name;
  std::optional<std::string> value;  ///< of --name=value
};

std::string spelled_flag(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name.size() == 1 ? "-" + name : "--" + name;
}

// --name, --name=value, -n; and, where asked for, name=value.
std::optional<Flag> flag_of(const std::string& word, bool bare_assignment) {
  const bool is_long = word.starts_with("--");
  const bool is_short = word.size() == 2 && word[0] == '-' && std::isalpha(word[1]) != 0;
  const size_t equals = word.find('=');
  if (!is_long && !is_short && (!bare_assignment || equals == std::string::npos))
    return std::nullopt;
  const size_t start = is_long ? 2 : is_short ? 1 : 0;
  if (equals == std::string::npos) return Flag{word.substr(start), std::nullopt};
  return Flag{word.substr(start, equals - start), word.substr(equals + 1)};
}

bool is_truth_word(const std::string& word) {
  static const std::vector<std::string> kWords{"true", "false", "1", "0", "yes", "no", "on", "off"};
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

using GivenTexts = std::map<const Option*, std::string>;

// Stores the value of the flag that stands at words[i]; returns the index of the last word of it.
// `given`: what options of one value have had.
size_t read_value(const FlagTarget& target, const Option& option, const Flag& flag,
                  const Words& words, size_t i, bool has_free_words, GivenTexts& given) {
  const auto assign = [&](const std::string& text) {
    const auto& before = given.try_emplace(&option, text).first->second;
    MS_CHECK(option.type == OptionType::TextList || before == text,
             "command line: option '{}': expected one value, got {} and {}",
             spelled_flag(flag.name), before, text);
    target.schema.assign_text(target.options, flag.name, text);
  };
  if (flag.value) {
    assign(*flag.value);
    return i;
  }
  if (option.type == OptionType::Boolean) {
    // A free word may look like one of these, so there the value is given by '='.
    const bool follows = !has_free_words && i + 1 < words.size() && is_truth_word(words[i + 1]);
    assign(follows ? words[i + 1] : "true");
    return follows ? i + 1 : i;
  }
  MS_CHECK(i + 1 < words.size(),
           "command line: option '{}': expected a value ({}), got the end of the line; {}",
           spelled_flag(flag.name), describe_type(option), option.doc);
  assign(words[++i]);
  while (option.type == OptionType::TextList && i + 1 < words.size() &&
         !flag_of(words[i + 1], false))
    assign(words[++i]);
  // A second value, which assign refuses.
  if (!has_free_words && i + 1 < words.size() && !flag_of(words[i + 1], true)) assign(words[i + 1]);
  return i;
}

// With the names of all targets, in the words of the last.
[[noreturn]] void fail_unknown_flag(const std::vector<FlagTarget>& targets,
                                    const std::string& name) {
  std::vector<std::string> others;
  for (size_t i = 0; i + 1 < targets.size(); ++i)
    for (const std::string& known : targets[i].schema.names()) others.push_back(known);
  OptionSchema all = targets.back().schema;
  if (!others.empty()) all.also_known(std::move(others));
  all.fail_unknown(name);
}

}  // namespace

void read_flags(const std::vector<FlagTarget>& targets, const Words& words, Words* free_words) {
  GivenTexts given;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::optional<Flag> flag = flag_of(words[i], free_words == nullptr);
    if (!flag && free_words != nullptr) {
      free_words->push_back(words[i]);
      continue;
    }
    MS_CHECK(flag, "command line: expected an option like --batch-size 4 or batch_size=4, got '{}'",
             words[i]);
    const auto knows = [&](const FlagTarget& target) { return target.schema.find(flag->name); };
    const auto target = std::find_if(targets.begin(), targets.end(), knows);
    if (target == targets.end()) fail_unknown_flag(targets, flag->name);
    i = read_value(*target, *knows(*target), *flag, words, i, free_words != nullptr, given);
  }
}

size_t read_leading_flags(const FlagTarget& target, const Words& words) {
  GivenTexts given;
  size_t i = 0;
  for (; i < words.size(); ++i) {
    const std::optional<Flag> flag = flag_of(words[i], false);
    const Option* option = flag ? target.schema.find(flag->name) : nullptr;
    if (option == nullptr) break;
    i = read_value(target, *option, *flag, words, i, true, given);
  }
  return i;
}

Words without_flags(const Words& words, const std::vector<std::string>& names) {
  Words rest;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::optional<Flag> flag = flag_of(words[i], true);
    const bool is_one = flag && std::any_of(names.begin(), names.end(), [&](const auto& name) {
                          return spelled_flag(name) == spelled_flag(flag->name);
                        });
    if (!is_one) rest.push_back(words[i]);
    if (is_one && !flag->value) ++i;
  }
  return rest;
}

std::string describe_flags(const OptionSchema& schema, const void* defaults) {
  size_t width = 0;
  for (const Option& option : schema.options())
    width = std::max(width, spelled_flag(option.name).size());
  std::string text;
  for (const Option& option : schema.options()) {
    const Json value = option.read(defaults);
    const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
    // A number that could not be given stands for "none was".
    const bool is_none = value.is_number() && (value < option.min || value > option.max);
    const bool has_default = !value.is_array() && !shown.empty() && !is_none;
    text += fmt::format("  {:<{}}  {} [{}{}]\n", spelled_flag(option.name), width, option.doc,
                        describe_type(option), has_default ? ": " + shown : "");
  }
  return text;
}

}  // namespace moonshard
