#include "bindings/host/ranks_command.h"

#include <signal.h>
#include <unistd.h>

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
#include "runtime/launch/program_ranks.h"

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

RanksOptions checked_ranks(const RanksFlags& flags) {
  const std::string& text = flags.nproc;
  int64_t count = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  MS_CHECK(error == std::errc() && stop == text.data() + text.size() && count >= 1 && count <= 4096,
           "command line: option '--nproc': expected an integer from 1 to 4096, got '{}'", text);
  return {count, flags.log_dir};
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

int start_ranks(const RanksOptions& options, const Verb& verb, const Words& words) {
  launch::ProgramRanks program;
  program.program = this_program();
  program.words = {verb.name};
  program.words.insert(program.words.end(), words.begin(), words.end());
  program.count = static_cast<int>(options.nproc);
  program.log_dir = options.log_dir;
  const SignalWatch watch;
  try {
    const launch::ProgramRanksResult result = launch::run_program_ranks(program);
    std::fflush(stdout);
    if (!result.report.empty()) fmt::print(stderr, "moonshard: {}\n", result.report);
    fmt::print(stderr, "moonshard: logs of the other ranks: {}\n", result.log_dir.string());
    return result.exit_code;
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
  static const OptionSchema schema("run", add_ranks_flags<RanksFlags>);
  RanksFlags flags;
  const size_t taken = read_leading_flags({schema, &flags}, words);
  MS_CHECK(taken == words.size() || !words[taken].starts_with("--"),
           "command line: expected a script, or --nproc or --log-dir before it, got '{}'",
           words[taken].substr(0, words[taken].find('=')));
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(taken));
  return checked_ranks(flags);
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
