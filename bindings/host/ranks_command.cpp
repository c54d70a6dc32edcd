#include "bindings/host/ranks_command.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/comm/rank_environment.h"
#include "runtime/comm/world.h"
#include "runtime/launch/group_guard.h"
#include "runtime/launch/host_agent.h"
#include "runtime/launch/program_ranks.h"
#include "runtime/launch/restarts.h"

namespace moonshard::host {
namespace {

std::atomic<int> ending_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler writes this");

// The first signal asks all ranks to end. A second has its default action: we end at once, and the
// ranks die with us.
void on_signal(int signal) {
  ending_signal.store(signal);
  request_interrupt();
}

// While ranks run, signals that would end this process end the job first.
class SignalWatch {
 public:
  SignalWatch() {
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      struct sigaction action {};
      action.sa_handler = &on_signal;
      action.sa_flags = SA_RESETHAND | SA_RESTART;
      sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~SignalWatch() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[std::size(kSignals)];
};

std::filesystem::path this_program() {
  std::error_code error;
  const auto file = std::filesystem::read_symlink("/proc/self/exe", error);
  // A rebuild may have removed the running executable; the /proc link still works.
  return !error && std::filesystem::exists(file, error) ? file : "/proc/self/exe";
}

int64_t checked_count(const char* flag, const std::string& text, int64_t least, int64_t most) {
  int64_t count = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool is_number = error == std::errc() && stop == text.data() + text.size();
  MS_CHECK(is_number && count >= least && count <= most,
           "command line: option '{}': expected an integer from {} to {}, got '{}'", flag, least,
           most, text);
  return count;
}

RanksOptions checked_ranks(const RanksFlags& flags) {
  RanksOptions options;
  options.nproc = checked_count("--nproc", flags.nproc, 1, launch::kMaxRanks);
  options.log_dir = flags.log_dir;
  return options;
}

// What a script's own words may be led by.
struct ScriptFlags : RanksFlags {
  std::string hosts, remote_shell, max_restarts = "0", min_nproc;
};

// No questions: nobody would answer, as the shell has no terminal.
constexpr const char* kRemoteShell = "ssh -T -o BatchMode=yes";

void take_hosts(const ScriptFlags& flags, RanksOptions& options) {
  if (flags.hosts.empty()) return;
  options.hosts = launch::read_host_list(flags.hosts, static_cast<int>(options.nproc));
  options.nproc = launch::total_of(options.hosts);
  MS_CHECK(options.nproc <= launch::kMaxRanks,
           "command line: option '--hosts': expected at most {} ranks in all, got {}",
           launch::kMaxRanks, options.nproc);
  const char* variable = std::getenv("MOONSHARD_REMOTE_SHELL");
  options.remote_shell = kRemoteShell;
  if (variable != nullptr && *variable != '\0') options.remote_shell = variable;
  if (!flags.remote_shell.empty()) options.remote_shell = flags.remote_shell;
}

bool told_others = false, failed_as_rank = false;

// Ends this process when its parent has died, that is when its parent process changes.
void watch_parent(pid_t parent) {
  while (::getppid() == parent) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  fmt::print(stderr, "moonshard: the launcher, process {}, has ended; this rank ends with it\n",
             parent);
  ::_exit(1);
}

}  // namespace

void end_with_launcher() {
  const auto environment = comm::rank_environment();
  if (!environment || environment->source == "moonshard") return;
  // Ranks started by hand may outlive the shell that started them.
  if (environment->source == "torchrun" && std::getenv("TORCHELASTIC_RUN_ID") == nullptr) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // only the main thread handles signals
  std::thread(&watch_parent, ::getppid()).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool must_start_ranks(int64_t nproc) {
  const auto environment = comm::rank_environment();
  if (!environment) return nproc > 1;
  MS_CHECK(nproc <= 1 || environment->world == nproc,
           "option 'nproc': expected {}, the ranks that {} started, got {}; leave it out",
           environment->world, environment->source, nproc);
  return false;
}

bool must_start_ranks(const RanksOptions& options) {
  const bool is_more = !options.hosts.empty() || options.max_restarts > 0;
  return must_start_ranks(options.nproc) || (is_more && !comm::is_rank());
}

int host_ranks_command(const Verb&, const Words& words) {
  MS_CHECK(words.empty(), "command line: expected no more words, got '{}'", words.back());
  return launch::serve_host_ranks();
}

int start_ranks(const RanksOptions& options, const Verb& verb, const Words& words) {
  launch::ProgramRanks program;
  program.program = this_program();
  program.words = {verb.name};
  program.words.insert(program.words.end(), words.begin(), words.end());
  program.ending_signal = [] { return ending_signal.load(); };
  program.remote_shell = options.remote_shell;
  program.say = [](const std::string& text) { fmt::print(stderr, "moonshard: {}\n", text); };
  launch::Restarts restarts(
      {options.nproc, options.hosts, options.max_restarts, options.min_nproc});
  const SignalWatch watch;
  try {
    while (true) {
      const auto began = std::chrono::steady_clock::now();
      program.count = restarts.count();
      program.hosts = restarts.hosts();
      program.log_dir = options.log_dir;
      if (!options.log_dir.empty() && restarts.done() > 0)
        program.log_dir /= fmt::format("restart_{}", restarts.done());
      const launch::ProgramRanksResult result = launch::run_program_ranks(program);
      std::fflush(stdout);
      if (!result.report.empty()) fmt::print(stderr, "moonshard: {}\n", result.report);
      if (!result.log_dir.empty() && program.count > 1)
        fmt::print(stderr, "moonshard: logs of the other ranks: {}\n", result.log_dir.string());
      const std::chrono::duration<double> ran = std::chrono::steady_clock::now() - began;
      if (!restarts.start_again(result, ran.count())) return result.exit_code;
      throw_if_interrupted();
      fmt::print(stderr, "moonshard: restart {} of {}, {} rank{}\n", restarts.done(),
                 options.max_restarts, restarts.count(), restarts.count() == 1 ? "" : "s");
      ::setenv("MOONSHARD_RESTARTS", std::to_string(restarts.done()).c_str(), 1);
    }
  } catch (const Interrupted&) {
    const int signal = ending_signal.load();
    if (signal == 0 || signal == SIGINT) throw;
    fmt::print(stderr, "moonshard: all ranks were ended: signal {}\n", signal);
    return 128 + signal;
  }
}

std::optional<int> start_ranks_if_asked(const RanksFlags& flags, const Verb& verb,
                                        const Words& words) {
  const RanksOptions options = checked_ranks(flags);
  if (!must_start_ranks(options.nproc)) return std::nullopt;
  return start_ranks(options, verb, without_flags(words, {"nproc", "log_dir"}));
}

RanksOptions take_ranks_options(Words& words) {
  static const OptionSchema schema("run", [](OptionSchema& flags) {
    add_ranks_flags<ScriptFlags>(flags);
    flags.text<ScriptFlags>("hosts", &ScriptFlags::hosts,
                            "hosts and their ranks: A:2,B:2, or A,B with --nproc for each");
    flags.text<ScriptFlags>("remote_shell", &ScriptFlags::remote_shell,
                            "words before a host and a command, instead of ssh");
    flags.text<ScriptFlags>("max_restarts", &ScriptFlags::max_restarts,
                            "starts after a rank or the job was lost");
    flags.text<ScriptFlags>("min_nproc", &ScriptFlags::min_nproc,
                            "ranks to go on with where a restart fails at once");
  });
  ScriptFlags flags;
  const size_t taken = read_leading_flags({schema, &flags}, words);
  MS_CHECK(taken == words.size() || !words[taken].starts_with("--"),
           "command line: expected a script, or --nproc, --hosts, --remote-shell, --log-dir, "
           "--max-restarts or --min-nproc before it, got '{}'",
           words[taken].substr(0, words[taken].find('=')));
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(taken));
  RanksOptions options = checked_ranks(flags);
  take_hosts(flags, options);
  options.max_restarts = checked_count("--max-restarts", flags.max_restarts, 0, 1'000'000);
  if (!flags.min_nproc.empty())
    options.min_nproc = checked_count("--min-nproc", flags.min_nproc, 1, options.nproc);
  return options;
}

bool is_first_rank() {
  return !comm::is_rank() || comm::rank_environment()->rank == 0;
}

void end_rank(const std::string& error) {
  if (told_others) return;
  told_others = true;
  try {
    if (!comm::is_rank()) return;
  } catch (const UsageError&) {
    return;  // posting may be what failed
  }
  failed_as_rank = !error.empty();
  comm::leave_world(error);
}

bool has_failed_as_rank() {
  return failed_as_rank;
}

}  // namespace moonshard::host
