// The program's verbs, once: --help, completion and the dispatcher read this list.
#pragma once

namespace moonshard::host {

struct Verb {
  const char* name;
  const char* doc;
};

inline constexpr Verb kVerbs[] = {
    {"run", "run a Lua script"},
    {"profile", "run one experiment by flags"},
    {"sweep", "run a sweep script by name or path"},
    {"repl", "explore at a prompt"},
    {"view", "look at run folders in a window, or render them to PNG"},
    {"plot", "draw the figures of a run folder"},
    {"models", "list the model presets"},
    {"engines", "list the clipping engines"},
    {"verify", "compare every engine with per-sample gradients by plain autograd"},
    {"doctor", "say what is wrong with this machine, and what to do"},
    {"completion", "print shell completion for bash or zsh"},
};

}  // namespace moonshard::host
