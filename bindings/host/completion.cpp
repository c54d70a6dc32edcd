// Shell completion: made from the same verbs and the same option schema as everything else.
#include <fmt/ranges.h>

#include <cstdio>

#include "bindings/host/commands.h"
#include "bindings/host/sweep_help.h"
#include "bindings/host/verbs.h"
#include "runtime/experiment/experiment.h"
#include "runtime/models/registry.h"

namespace moonshard::host {
namespace {

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  return names;
}

std::vector<std::string> flag_names() {
  std::vector<std::string> flags;
  for (const Option& option : train::experiment_schema().options()) {
    std::string name = option.name;
    std::replace(name.begin(), name.end(), '_', '-');
    flags.push_back("--" + name);
  }
  return flags;
}

// case branches that offer the values of options with a closed list
std::string value_cases() {
  std::string text;
  const auto add = [&text](const std::string& name, const std::vector<std::string>& values) {
    text += fmt::format("    --{0}) COMPREPLY=($(compgen -W \"{1}\" -- \"$word\")); return;;\n",
                        name, fmt::join(values, " "));
  };
  for (const Option& option : train::experiment_schema().options()) {
    if (!option.words().empty()) add(option.name, option.words());
  }
  std::vector<std::string> models;
  for (const models::Preset& preset : models::presets()) models.push_back(preset.sizes.model);
  add("model", models);
  return text;
}

std::string bash_script() {
  return fmt::format(
      "# bash completion of moonshard: source <(moonshard completion bash)\n"
      "_moonshard() {{\n"
      "  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" before=\"${{COMP_WORDS[COMP_CWORD-1]}}\" "
      "verb=\"${{COMP_WORDS[1]}}\"\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return; "
      "fi\n"
      "  case \"$before\" in\n{}"
      "  esac\n"
      "  case \"$verb\" in\n"
      "    profile) COMPREPLY=($(compgen -W \"{} --json --output --help\" -- \"$word\"));;\n"
      "    sweep) COMPREPLY=($(compgen -W \"{}\" -- \"$word\") "
      "$(compgen -f -- \"$word\"));;\n"
      "    privacy) COMPREPLY=($(compgen -W \"epsilon calibrate --method --q --sigma --steps "
      "--delta "
      "--target-epsilon --batch-size --dataset-size --epochs --orders --json --help\" -- "
      "\"$word\"));;\n"
      "    completion) COMPREPLY=($(compgen -W \"bash zsh\" -- \"$word\"));;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$word\"));;\n"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _moonshard moonshard\n",
      fmt::join(verb_names(), " "), value_cases(), fmt::join(flag_names(), " "), kSweepFlags);
}

}  // namespace

int completion_command(const std::string& shell) {
  MS_CHECK(shell == "bash" || shell == "zsh", "completion: expected bash or zsh, got '{}'", shell);
  // zsh runs bash's completion functions through its own adapter.
  if (shell == "zsh")
    fmt::print(
        "# zsh completion of moonshard: source <(moonshard completion zsh)\nautoload -U +X "
        "compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n");
  fmt::print("{}", bash_script());
  return 0;
}

}  // namespace moonshard::host
