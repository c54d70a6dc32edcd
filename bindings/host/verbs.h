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
    {"compare", "show what differs between results, and their figures side by side"},
    {"export", "write results as CSV, Markdown, LaTeX, JSON or TensorBoard events"},
    {"models", "list the model presets"},
    {"engines", "list the clipping engines"},
    {"verify", "compare every engine with per-sample gradients by plain autograd"},
    {"audit", "try to break the privacy promise of every engine, with canaries"},
    {"privacy", "compute epsilon, or the noise, steps or rate that a budget allows"},
    {"doctor", "say what is wrong with this machine, and what to do"},
    {"completion", "print shell completion for bash or zsh"},
};

inline constexpr const char* kPlotUsage =
    "DIR [FIGURE…] [--out DIR] [--size WxH] [--scale 1..4] [--theme light|dark]";
inline constexpr const char* kPlotHelp =
    "Draws figures of a run folder as PNG, with their plot specs; without names all that the "
    "records allow.\nA wrong name lists them; docs/plots.md says what each shows.\n"
    "  --out DIR    folder for the pictures (DIR/visualizations)\n"
    "  --size WxH   at scale 1, instead of each figure's own\n"
    "  --scale N    pixels per unit of size, 1 to 4 (2)\n"
    "  --theme T    light (paper, the default) or dark";

inline constexpr const char* kCompareUsage =
    "DIR|RESULT.json… [--all] [--json] [--metrics a,b,…] [--only KEY=GLOB]";
inline constexpr const char* kCompareHelp =
    "Shows the options in which results differ, then their figures side by side, with the ratio to "
    "the first.\nTwo or more run folders: points that agree in the axes stand beside each other. "
    "One "
    "folder: its points.\n"
    "  --all           also the options in which they agree, and all figures\n"
    "  --metrics a,b   these figures instead of the usual ones\n"
    "  --only KEY=GLOB points whose option matches\n"
    "  --json          the same as JSON";

inline constexpr const char* kPrivacyUsage =
    "epsilon|calibrate --delta D [--q Q] [--sigma S] [--steps N] [--target-epsilon E] [--method M] "
    "[--json]";
inline constexpr const char* kPrivacyHelp =
    "epsilon: what steps with this rate and noise cost. calibrate: whichever of q, sigma and steps "
    "is left out, so that the budget holds.\n"
    "  --method rdp|prv|pld|gaussian|gdp   one of them; else rdp, prv and, as an approximation, "
    "gdp\n"
    "  --q Q, --sigma S, --steps N         sampling rate, noise multiplier, number of steps\n"
    "  --delta D, --target-epsilon E       chance that the promise fails; the budget\n"
    "  --batch-size B --dataset-size N     instead of --q\n"
    "  --epochs E                          instead of --steps\n"
    "  --orders A B …                      Renyi orders of rdp\n"
    "  --json                              the same as JSON\n"
    "docs/privacy.md says what each method promises.";

inline constexpr const char* kExportUsage =
    "DIR --format csv|md|latex|json|tensorboard [--output FILE] [--table points|overhead|phases|"
    "memory]";
inline constexpr const char* kExportHelp =
    "Writes the results of a run folder in a format of other programs: to the screen, or to a "
    "file.\nTensorBoard events are a folder with one sub-folder per point (default "
    "DIR/tensorboard).\n"
    "  --table points|overhead|phases|memory   which table (points)";

}  // namespace moonshard::host
