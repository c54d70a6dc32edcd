#include "bindings/host/flags.h"

#include <algorithm>

namespace moonshard::host {
namespace {

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

void read_flags(const OptionSchema& schema, const std::vector<std::string>& words, void* target) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool is_flag = word.rfind("--", 0) == 0;
    const size_t equals = word.find('=');
    MS_CHECK(is_flag || equals != std::string::npos,
             "command line: expected an option like --batch-size 4 or batch_size=4, got '{}'",
             word);
    const size_t start = is_flag ? 2 : 0;
    const std::string name =
        word.substr(start, equals == std::string::npos ? equals : equals - start);
    const Option* option = schema.find(name);
    if (option == nullptr) schema.fail_unknown(name);
    if (equals != std::string::npos) {
      schema.assign_text(target, name, word.substr(equals + 1));
    } else if (option->type == OptionType::Boolean &&
               (i + 1 == words.size() || words[i + 1].rfind("--", 0) == 0)) {
      schema.assign_text(target, name, "true");
    } else {
      MS_CHECK(i + 1 < words.size(),
               "command line: option '--{}': expected a value ({}), got the end of the line; {}",
               dashed(name), describe_type(*option), option->doc);
      schema.assign_text(target, name, words[++i]);
    }
  }
}

std::string describe_flags(const OptionSchema& schema, const void* defaults) {
  size_t width = 0;
  for (const Option& option : schema.options()) width = std::max(width, option.name.size());
  std::string text;
  for (const Option& option : schema.options()) {
    const Json value = option.read(defaults);
    const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
    text += fmt::format("  --{:<{}}  {} [{}: {}]\n", dashed(option.name), width, option.doc,
                        describe_type(option), shown);
  }
  return text;
}

}  // namespace moonshard::host
