// The moonshard program. Exit codes: 0 good, 1 error, 2 usage, 3 out of memory, 4 verification
// failed, 5 sweep finished with failed points, 130 interrupted.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>

#include "bindings/host/audit_command.h"
#include "bindings/host/commands.h"
#include "bindings/host/lua_host.h"
#include "bindings/host/ranks_command.h"
#include "bindings/host/repl.h"
#include "bindings/host/sweep_help.h"
#include "bindings/host/verbs.h"
#include "bindings/host/verify_command.h"
#include "bindings/lua_error.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"
#include "runtime/comm/world.h"
#include "runtime/launch/machine.h"
#include "runtime/launch/process.h"
#include "runtime/profile/memory.h"
#include "runtime/profile/trace_request.h"

namespace {

using namespace moonshard;
using Words = std::vector<std::string>;

std::string help_text() {
  std::string text =
      "moonshard: experiments on private and sharded training, in Lua.\n\nusage: moonshard VERB "
      "[options]\n\n";
  for (const host::Verb& verb : host::kVerbs)
    text += fmt::format("  {:<11} {}\n", verb.name, verb.doc);
  return text +
         "\nmoonshard VERB --help explains a verb; --version prints the version.\n"
         "Exit codes: 0 good, 1 error, 2 usage, 3 out of memory, 4 verification failed, 5 a sweep "
         "has "
         "failed points, 130 "
         "interrupted.\n";
}

// One parser per verb. Words that are not the verb's own flags stay in order for the verb itself.
class VerbLine {
 public:
  VerbLine(const char* verb, const char* usage, const char* doc)
      : app_(std::string(doc)), usage_(fmt::format("usage: moonshard {} {}\n", verb, usage)) {
    app_.allow_extras();
  }
  CLI::App* operator->() { return &app_; }

  /// Parses; returns the words that were left over. --help throws CLI::CallForHelp.
  Words parse(Words words) {
    std::reverse(words.begin(), words.end());  // CLI11 takes its words from the back
    app_.parse(words);
    return app_.remaining();
  }
  std::string help() const {
    std::string text = app_.help();
    const size_t own_usage = text.find("Usage:");  // CLI11's line does not know the verb's words
    if (own_usage != std::string::npos)
      text.erase(own_usage, text.find('\n', own_usage) - own_usage + 1);
    return usage_ + text;
  }

  int print_help() const {
    std::cout << help();
    return 0;
  }

 private:
  CLI::App app_;
  std::string usage_;
};

void expect_no_more(const Words& words) {
  MS_CHECK(words.empty(), "command line: expected no more words, got '{}'",
           words.empty() ? "" : words[0]);
}

// A verb's words with the verb, for its ranks.
Words rank_words(const char* verb, Words words) {
  words.insert(words.begin(), verb);
  return words;
}

int run_verb(Words words) {
  // Everything after the script is the script's own, --help too.
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    std::cout
        << "usage: moonshard run [--nproc N] [--log-dir DIR] SCRIPT.lua [arguments]\n"
           "Runs a Lua script; its arguments are in `arg` and `...`. With --nproc, N ranks of "
           "one job run it\n(ms.dist says which is which): rank 0 here, the others into "
           "DIR/log.rank<r>.txt.\n";
    return words.empty() ? 2 : 0;
  }
  const host::RanksOptions ranks = host::take_ranks_options(words);
  MS_CHECK(!words.empty(), "command line: expected a script, got the end of the line");
  if (host::must_start_ranks(ranks.nproc))
    return host::start_ranks(ranks, rank_words("run", words));
  host::LuaHost lua;
  return lua.run_file(words[0], Words(words.begin() + 1, words.end()));
}

int profile_verb(const Words& words) {
  VerbLine line("profile", "[--model NAME] [--mode ENGINE] …", "One experiment by flags.");
  bool as_json = false;
  std::string output, log_dir;
  line->add_flag("--json", as_json, "print the whole record as JSON");
  line->add_option("--output,--out", output, "write the result to this file");
  line->add_option("--log-dir", log_dir, "folder for the logs of ranks other than 0");
  Words rest;
  try {
    rest = line.parse(words);
  } catch (const CLI::CallForHelp&) {
    std::cout << line.help() << "\n" << host::profile_help();
    return 0;
  }
  const int64_t nproc = host::profile_ranks(rest);
  if (host::must_start_ranks(nproc))
    return host::start_ranks({nproc, log_dir},
                             rank_words("profile", host::without_option(words, "--log-dir")));
  return host::profile_command(rest, as_json, output);
}

int repl_verb(const Words& words) {
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    std::cout << "usage: moonshard repl\nA prompt with the module as `ms`; reads a pipe, too. "
                 ".help lists its commands.\n";
    return 0;
  }
  expect_no_more(words);
  host::LuaHost lua;
  return host::run_repl(lua.state(),
                        host::default_repl_options((launch::shared_files() / "scripts").string()));
}

// Verbs whose work is Lua: the words go to the function of that name in moonshard.cli.
int lua_verb(const char* name, const char* usage, const char* doc, const Words& words) {
  if (std::find(words.begin(), words.end(), "--help") != words.end() ||
      std::find(words.begin(), words.end(), "-h") != words.end()) {
    std::cout << "usage: moonshard " << name << " " << usage << "\n" << doc << "\n";
    return 0;
  }
  host::LuaHost lua;
  return lua.call_command(name, words);
}

int sweep_verb(const Words& words) {
  // Behind the script's name --help is the script's.
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    std::cout << host::kSweepHelp;
    return 0;
  }
  host::LuaHost lua;
  return lua.call_command("sweep", words);
}

int completion_verb(const Words& words) {
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    std::cout << "usage: moonshard completion bash|zsh\nPrints a script: source <(moonshard "
                 "completion bash)\n";
    return 0;
  }
  return host::completion_command(words.empty() ? "" : words[0]);
}

int doctor_verb(const Words& words) {
  VerbLine line("doctor", "[--json]",
                "Looks at this machine and says what to do about each problem.");
  bool as_json = false;
  line->add_flag("--json", as_json, "print findings as JSON");
  try {
    expect_no_more(line.parse(words));
  } catch (const CLI::CallForHelp&) {
    return line.print_help();
  }
  return host::doctor_command(as_json);
}

void add_rank_flags(VerbLine& line, host::RanksOptions& ranks) {
  line->add_option("--nproc", ranks.nproc, "ranks on this machine")->check(CLI::Range(1, 4096));
  line->add_option("--log-dir", ranks.log_dir, "folder for the logs of ranks other than 0");
}

// The words that are the verb's own, or the exit code when help was asked for or ranks did the
// work.
std::optional<int> parse_or_start_ranks(const char* verb, VerbLine& line, const Words& words,
                                        const host::RanksOptions& ranks, const std::string& help,
                                        Words& rest) {
  try {
    rest = line.parse(words);
  } catch (const CLI::CallForHelp&) {
    std::cout << line.help() << "\n" << help;
    return 0;
  }
  if (!host::must_start_ranks(ranks.nproc)) return std::nullopt;
  const Words others = host::without_option(host::without_option(words, "--nproc"), "--log-dir");
  return host::start_ranks(ranks, rank_words(verb, others));
}

int verify_verb(const Words& words) {
  VerbLine line(
      "verify",
      "[--model NAME] [--engine NAME] [--options NAME] [--dtype NAME] [--json] [--verbose]",
      "Compares every engine with batch-of-one gradients by plain autograd: norms, clip "
      "factors, clipped sums and the weights after a step. Exit code 4 when a cell fails.");
  verify::VerifyOptions options;
  host::VerifyOutput output;
  std::string fault;
  host::RanksOptions ranks;
  line->add_option("--model,--model-name", options.model, "one preset instead of every tiny one");
  line->add_option("--engine,--mode", options.engine, "one engine instead of all");
  line->add_option("--options", options.options, "one way to train, e.g. accumulation");
  line->add_option("--dtype", options.dtype, "float64, float32 or bfloat16");
  line->add_option("--device", options.device, "auto, cpu or cuda");
  line->add_option("--seed", options.seed, "of weights and data");
  line->add_flag("--json", output.as_json, "print all cells as JSON");
  line->add_flag("--verbose", output.verbose, "print norms before and after clipping");
  line->add_option("--fault", fault,
                   "switch a deliberate mistake on, to see it found: no_bias_term, no_cross_term, "
                   "no_padding_rule, micro_step_norm, wrong_denominator");
  add_rank_flags(line, ranks);
  Words rest;
  if (const auto ended =
          parse_or_start_ranks("verify", line, words, ranks, host::verify_help(), rest))
    return *ended;
  return host::verify_command(options, output, fault, rest);
}

int audit_verb(const Words& words) {
  VerbLine line("audit",
                "[--engine NAME|all] [--seeds N] [--canaries N] [--sigma S] [--delta D] [--nproc N "
                "--parallel fsdp|ddp] [--json]",
                "Puts canaries into real training steps by coin flips, guesses the coins from the "
                "weights, and prints lower bounds on epsilon beside the claim. Exit code 4 when a "
                "bound is above it.");
  bool as_json = false;
  std::string fault;
  host::RanksOptions ranks;
  line->add_flag("--json", as_json, "print all audits as JSON");
  line->add_option("--fault", fault,
                   "switch a deliberate mistake on, to see it found; a wrong name lists them");
  add_rank_flags(line, ranks);
  Words rest;
  if (const auto ended =
          parse_or_start_ranks("audit", line, words, ranks, host::audit_help(), rest))
    return *ended;
  return host::audit_command(rest, as_json, fault);
}

int dispatch(const std::string& verb, const Words& words) {
  if (verb == "run") return run_verb(words);
  if (verb == "profile") return profile_verb(words);
  if (verb == "repl") return repl_verb(words);
  if (verb == "view") return host::view_command(words);
  if (verb == "doctor") return doctor_verb(words);
  if (verb == "verify") return verify_verb(words);
  if (verb == "audit") return audit_verb(words);
  if (verb == "completion") return completion_verb(words);
  if (verb == "sweep") return sweep_verb(words);
  if (verb == "plot") return lua_verb("plot", host::kPlotUsage, host::kPlotHelp, words);
  if (verb == "compare") return lua_verb("compare", host::kCompareUsage, host::kCompareHelp, words);
  if (verb == "privacy") return lua_verb("privacy", host::kPrivacyUsage, host::kPrivacyHelp, words);
  if (verb == "export") return lua_verb("export", host::kExportUsage, host::kExportHelp, words);
  if (verb == "models") return lua_verb("models", "[--json]", "Lists the model presets.", words);
  if (verb == "engines")
    return lua_verb("engines", "[--json]", "Lists the clipping engines.", words);
  if (verb == "point" && words.size() == 2) return host::point_command(words[0], words[1]);
  if (verb == "experiment" && words.size() == 2)
    return host::experiment_command(words[0], words[1]);
  Words names;
  for (const host::Verb& known : host::kVerbs) names.emplace_back(known.name);
  const std::string near = nearest_name(verb, names);
  throw UsageError(fmt::format("expected a verb (moonshard --help lists them), got '{}'{}", verb,
                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

// Says it here, and to the other ranks of the job where there are any.
int fail(int code, const std::string& message) {
  std::cerr << "moonshard: " << message << "\n";
  host::end_rank(message);
  return code;
}

int run_program(const Words& words) try {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    std::cout << help_text();
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    std::cout << "moonshard " << launch::version() << "\n";
    return 0;
  }
  profile::install_cpu_memory_hook();
  comm::take_own_gpu();
  profile::listen_for_trace_requests();
  if (words[0] == "run" || words[0] == "profile" || words[0] == "verify" || words[0] == "audit")
    host::end_with_launcher();
  const int code = dispatch(words[0], Words(words.begin() + 1, words.end()));
  host::end_rank(code == 0 ? "" : fmt::format("exit code {}", code));
  return code;
} catch (const CLI::ParseError& error) {
  return fail(2, error.what());
} catch (const UsageError& error) {
  return fail(2, error.what());
} catch (const OutOfMemoryError& error) {
  return fail(3, error.what());
} catch (const Interrupted& error) {
  return fail(130, error.what());
} catch (const std::exception& error) {
  return fail(1, bindings::readable_message(error));
}

}  // namespace

int main(int argc, char** argv) {
  launch::die_with_parent();
  const int code = run_program(Words(argv + 1, argv + argc));
  std::cout.flush();
  // What could not be written was not said: a full disk behind a pipe must not look like success.
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::cerr
        << "moonshard: standard output: cannot write: the disk is full or the pipe is closed\n";
    return code != 0 ? code : 1;
  }
  if (host::has_failed_as_rank()) ::_exit(code);
  return code;
}
