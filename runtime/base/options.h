// Option descriptors: one table of name, type, default, range and doc line per option struct. It
// feeds command-line flags, Lua tables, result files, --help and completion, so that they cannot
// disagree. Defaults live once, in the struct's member initialisers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"

namespace moonshard {

enum class OptionType { Integer, Real, Boolean, Text, TextList, Choice };

struct Option {
  std::string name;
  OptionType type;
  std::string doc;                                   ///< one line
  std::vector<std::string> aliases;                  ///< other spellings of the name
  double min = 0, max = 0;                           ///< of numbers, inclusive
  std::vector<std::string> choices;                  ///< of Choice
  std::map<std::string, std::string> value_aliases;  ///< of Choice: other spellings of a value
  /// Of Choice, instead of the lists above: asked each time, for words that are added while
  /// running.
  std::function<std::vector<std::string>()> live_choices;
  std::function<std::map<std::string, std::string>()> live_aliases;
  std::function<void(void*, const Json&)> write;  ///< stores an already checked value
  std::function<Json(const void*)> read;

  std::vector<std::string> words() const { return live_choices ? live_choices() : choices; }
};

/// Descriptors of one option struct, in the order users see them.
class OptionSchema {
 public:
  /// `where` opens every error text, e.g. "experiment"; `add` fills in the descriptors.
  explicit OptionSchema(std::string where, const std::function<void(OptionSchema&)>& add = {})
      : where_(std::move(where)) {
    if (add) add(*this);
  }

  template <class T>
  Option& integer(const char* name, int64_t T::*field, double min, double max, const char* doc) {
    return number(name, OptionType::Integer, field, min, max, doc);
  }
  template <class T>
  Option& real(const char* name, double T::*field, double min, double max, const char* doc) {
    return number(name, OptionType::Real, field, min, max, doc);
  }
  template <class T>
  Option& boolean(const char* name, bool T::*field, const char* doc) {
    return add(name, OptionType::Boolean, field, doc);
  }
  template <class T>
  Option& text(const char* name, std::string T::*field, const char* doc) {
    return add(name, OptionType::Text, field, doc);
  }
  template <class T>
  Option& texts(const char* name, std::vector<std::string> T::*field, const char* doc) {
    return add(name, OptionType::TextList, field, doc);
  }
  template <class T>
  Option& choice(const char* name, std::string T::*field, std::vector<std::string> choices,
                 const char* doc) {
    Option& option = add(name, OptionType::Choice, field, doc);
    option.choices = std::move(choices);
    return option;
  }
  /// A choice of auto, yes and no; true and false are other spellings of the last two.
  template <class T>
  Option& yes_or_no(const char* name, std::string T::*field, const char* doc) {
    Option& option = choice(name, field, {"auto", "yes", "no"}, doc);
    option.value_aliases = {{"true", "yes"}, {"false", "no"}};
    return option;
  }

  /// Names that the caller reads by itself: errors list them with the others.
  void also_known(std::vector<std::string> names) { also_known_ = std::move(names); }
  bool is_also_known(std::string_view name) const;

  const std::vector<Option>& options() const { return options_; }
  std::vector<std::string> names() const;
  /// The option of that name or alias; '-' counts as '_'. Null when there is none.
  const Option* find(std::string_view name) const;

  /// Checks and stores one value. Throws UsageError for an unknown name (with the nearest and all
  /// known), a wrong type, a value out of range, or a word that is not among the choices.
  void assign(void* target, std::string_view name, const Json& value) const;
  /// The same from a word of the command line ("64", "true", "1e-5"); a list grows by it.
  void assign_text(void* target, std::string_view name, const std::string& text) const;
  /// All of an object's keys.
  void assign_all(void* target, const Json& values) const;
  Json to_json(const void* source) const;

  /// Options as a set: throws UsageError for an option that is not among `used` and has another
  /// value in `source` than in `recorded`, which holds what the program itself writes for an option
  /// that nobody uses. Tables of effective options therefore pass. `user` completes "means nothing
  /// to …".
  void refuse_unused(const void* source, const void* recorded, const std::vector<std::string>& used,
                     const std::string& user) const;

  [[noreturn]] void fail_unknown(std::string_view name) const;

 private:
  template <class T, class Value>
  Option& add(const char* name, OptionType type, Value T::*field, const char* doc) {
    Option& option = options_.emplace_back();
    option.name = name;
    option.type = type;
    option.doc = doc;
    option.write = [field](void* to, const Json& v) {
      static_cast<T*>(to)->*field = v.get<Value>();
    };
    option.read = [field](const void* from) { return Json(static_cast<const T*>(from)->*field); };
    return option;
  }
  template <class T, class Value>
  Option& number(const char* name, OptionType type, Value T::*field, double min, double max,
                 const char* doc) {
    Option& option = add(name, type, field, doc);
    option.min = min;
    option.max = max;
    return option;
  }
  Json checked(const Option& option, const Json& value) const;

  std::string where_;
  std::vector<Option> options_;
  std::vector<std::string> also_known_;
};

/// The candidate with the smallest edit distance, or "" when none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);
/// "; did you mean 'NEAREST'?", the end of an error text; `otherwise` when none is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates,
                         const std::string& otherwise = "");
/// Throws UsageError "WHERE: expected one of NAMES, got 'NAME'; did you mean …".
[[noreturn]] void fail_unknown_name(const std::string& where, const std::string& name,
                                    const std::vector<std::string>& names);

/// "int", "number", "true | false", "a | b | c": what help texts and errors call a type.
std::string describe_type(const Option& option);

}  // namespace moonshard
