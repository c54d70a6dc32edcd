#include "bindings/host/verbs.h"

#include <algorithm>
#include <cstdio>

#include "runtime/base/check.h"

namespace moonshard::host {
namespace {

// The work and the help of a verb with lua_command is a table of scripts/moonshard/cli/NAME.lua.
constexpr Verb kVerbs[] = {
    {"run", "run a Lua script", &run_command, &run_help, /*runs_script=*/true,
     /*may_be_rank=*/true},
    {"profile", "run one experiment by flags", &profile_command, &profile_help, false,
     /*may_be_rank=*/true},
    {"sweep", "run a sweep script by name or path", &lua_command, &lua_help, /*runs_script=*/true},
    {"repl", "explore at a prompt", &repl_command, &repl_help},
    {"kernel", "moonshard in Jupyter notebooks", &kernel_command, &lua_help},
    {"view", "look at run folders in a window, or render them to PNG", &view_command},
    {"plot", "draw the figures of a run folder", &lua_command, &lua_help},
    {"compare", "show what differs between results, and their figures side by side", &lua_command,
     &lua_help},
    {"export", "write results as CSV, Markdown, LaTeX, JSON or TensorBoard events", &lua_command,
     &lua_help},
    {"report", "write a run as one HTML page to send", &lua_command, &lua_help},
    {"generate", "continue a text with a model", &lua_command, &lua_help},
    {"plan", "predict memory and time on a cluster, and find what fits", &lua_command, &lua_help},
    {"trace", "say what a step waited for, what it would take without, and how two differ",
     &lua_command, &lua_help},
    {"models", "list the model presets", &lua_command, &lua_help},
    {"engines", "list the clipping engines", &lua_command, &lua_help},
    {"verify", "compare every engine with per-sample gradients by plain autograd", &verify_command,
     &verify_help, false, /*may_be_rank=*/true},
    {"audit", "try to break the privacy promise of every engine, with canaries", &audit_command,
     &audit_help, false, /*may_be_rank=*/true},
    {"privacy", "compute epsilon, or the noise, steps or rate that a budget allows", &lua_command,
     &lua_help},
    {"doctor", "say what is wrong with this machine, or with the files of a run folder",
     &doctor_command, &doctor_help},
    {"completion", "print shell completion for bash or zsh", &completion_command, &lua_help},
    {"point", nullptr, &point_command},
    {"experiment", nullptr, &experiment_command},
    {"host-ranks", nullptr, &host_ranks_command},
};

bool asks_for_help(const std::string& word) {
  return word == "--help" || word == "-h";
}

}  // namespace

std::span<const Verb> verbs() {
  return kVerbs;
}

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) {
    if (name == verb.name) return verb;
    if (verb.summary != nullptr) names.emplace_back(verb.name);
  }
  throw UsageError(fmt::format("expected a verb (moonshard --help lists them), got '{}'{}", name,
                               did_you_mean(name, names)));
}

int run_verb(const Verb& verb, const Words& words) {
  const auto end = verb.runs_script && !words.empty() ? words.begin() + 1 : words.end();
  if (verb.help != nullptr && std::any_of(words.begin(), end, &asks_for_help)) {
    fmt::print("{}", verb.help(verb));
    return 0;
  }
  return verb.run(verb, words);
}

std::string program_help() {
  std::string text =
      "moonshard: experiments on private and sharded training, in Lua.\n\n"
      "usage: moonshard VERB [options]\n\n";
  for (const Verb& verb : kVerbs)
    if (verb.summary != nullptr) text += fmt::format("  {:<11} {}\n", verb.name, verb.summary);
  return text +
         "\nmoonshard VERB --help explains a verb; --version prints the version.\n"
         "Exit codes: 0 good, 1 error, 2 usage, 3 out of memory, 4 verification failed, 5 a sweep "
         "has failed points, 130 interrupted.\n";
}

std::string usage_text(const Verb& verb, const std::string& usage, const std::string& text) {
  return fmt::format("usage: moonshard {}{}{}\n{}\n", verb.name, usage.empty() ? "" : " ", usage,
                     text);
}

}  // namespace moonshard::host
