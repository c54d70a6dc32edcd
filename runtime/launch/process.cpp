#include "runtime/launch/process.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/prefix.h"
#include "runtime/profile/trace_request.h"

extern char** environ;

namespace moonshard::launch {
namespace {

using namespace std::chrono_literals;
constexpr const char* kParentVariable = "MOONSHARD_PARENT_PID";

// Set by our launcher for a rank. A process that a rank starts is not a rank and must not see
// these.
constexpr const char* kRankVariables[] = {
    "RANK",           "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MOONSHARD_JOB_TOKEN",
    "MOONSHARD_STORE"};

// Owns posix_spawn's attributes.
class SpawnSettings {
 public:
  explicit SpawnSettings(const ProcessRequest& request) {
    const std::filesystem::path& log = request.log;
    posix_spawn_file_actions_init(&files_);
    if (request.input >= 0) {
      posix_spawn_file_actions_adddup2(&files_, request.input, 0);
    } else if (!log.empty() || ::isatty(0) != 0) {
      posix_spawn_file_actions_addopen(&files_, 0, "/dev/null", O_RDONLY, 0);
    }
    if (request.output >= 0) posix_spawn_file_actions_adddup2(&files_, request.output, 1);
    if (request.errors >= 0) posix_spawn_file_actions_adddup2(&files_, request.errors, 2);
    if (!log.empty()) {
      posix_spawn_file_actions_addopen(&files_, 1, log.c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
      posix_spawn_file_actions_adddup2(&files_, 1, 2);
    }
    posix_spawnattr_init(&attributes_);
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    // Signals that the parent ignores or handles must be at their defaults in the child.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) sigaddset(&defaults, signal);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

std::string name_in(const char* entry) {
  const char* equals = std::strchr(entry, '=');
  return equals != nullptr ? std::string(entry, equals) : entry;
}

// Our environment, without what the child must not see, plus its own variables.
std::vector<std::string> child_environment(
    const std::vector<std::pair<std::string, std::string>>& added, bool is_ours) {
  std::set<std::string> hidden{kParentVariable};
  if (std::getenv("MOONSHARD_STORE") != nullptr)
    hidden.insert(std::begin(kRankVariables), std::end(kRankVariables));
  std::vector<std::string> variables;
  if (is_ours) variables.push_back(fmt::format("{}={}", kParentVariable, ::getpid()));
  for (const auto& [name, value] : added) {
    hidden.insert(name);
    variables.push_back(name + "=" + value);
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!hidden.contains(name_in(*entry))) variables.emplace_back(*entry);
  }
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Waits for the child until the deadline. True when it ended.
bool wait_until(pid_t child, int& status, std::chrono::steady_clock::time_point deadline) {
  while (true) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
}

void end_group(pid_t child, int& status) {
  ::kill(-child, SIGTERM);
  if (wait_until(child, status, std::chrono::steady_clock::now() + 5s)) return;
  ::kill(-child, SIGKILL);
  wait_until(child, status, std::chrono::steady_clock::now() + 60s);
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction before[std::size(kSignals)];
int depth = 0;
std::atomic<int> presses{0}, last_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler writes this");

void on_signal(int signal) {
  last_signal.store(signal);
  presses.fetch_add(signal == SIGINT ? 1 : 2);
}

}  // namespace

pid_t start_process(const ProcessRequest& request) {
  // Opened here first: posix_spawn would blame the program for a log that cannot be written.
  if (!request.log.empty()) {
    const int log_file =
        ::open(request.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log_file < 0) {
      throw IoError(fmt::format("{}: cannot write the log: {}; check the folder",
                                request.log.string(), std::strerror(errno)));
    }
    ::close(log_file);
  }
  std::vector<std::string> arguments = request.arguments;
  std::vector<std::string> variables = child_environment(request.variables, request.is_ours);
  const std::vector<char*> argv = pointers_to(arguments), envp = pointers_to(variables);
  SpawnSettings settings(request);
  pid_t child = 0;
  // A trace request must not end a child that has no handler yet: ignored signals stay ignored.
  struct sigaction ignored {
  }, ours{};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGUSR2, &ignored, &ours);
  const int error = posix_spawn(&child, argv[0], &settings.files_, &settings.attributes_,
                                argv.data(), envp.data());
  sigaction(SIGUSR2, &ours, nullptr);
  if (error != 0) {
    throw IoError(fmt::format(
        "{}: cannot start: {}; build it, or set MOONSHARD_PREFIX to where moonshard is installed",
        arguments[0], std::strerror(error)));
  }
  return child;
}

std::optional<ProcessResult> peek_end(pid_t child) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    if (errno == ECHILD) return ProcessResult{};  // reaped already: SIGCHLD is ignored here
    return std::nullopt;
  }
  if (info.si_pid != child) return std::nullopt;
  ProcessResult result;
  (info.si_code == CLD_EXITED ? result.exit_code : result.signal) = info.si_status;
  return result;
}

ProcessResult run_process(const ProcessRequest& request, const ProcessWatch& watch) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const pid_t child = start_process(request);
  ProcessResult result;
  int status = 0;
  try {
    while (!wait_until(child, status, Clock::now() + 100ms)) {
      if (watch.stops_on_interrupt) throw_if_interrupted();
      if (profile::take_trace_request().steps > 0) ::kill(-child, SIGUSR2);
      const std::chrono::duration<double> spent = Clock::now() - start;
      if (watch.timeout_s > 0 && spent.count() >= watch.timeout_s) {
        result.ended_by = EndedBy::Timeout;
      } else if (watch.keep_going && !watch.keep_going()) {
        result.ended_by = EndedBy::Caller;
      } else {
        continue;
      }
      end_group(child, status);
      break;
    }
  } catch (...) {
    end_group(child, status);
    throw;
  }
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

ProcessResult run_process(const std::vector<std::string>& arguments,
                          const std::filesystem::path& log, const std::function<void()>& on_tick) {
  ProcessWatch watch;
  if (on_tick) {
    watch.keep_going = [&on_tick] {
      on_tick();
      return true;
    };
  }
  return run_process({arguments, log, {}}, watch);
}

void die_with_parent() {
  const char* variable = std::getenv(kParentVariable);
  if (variable == nullptr) return;
  const long parent = std::atol(variable);
  ::unsetenv(kParentVariable);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the line above took effect.
  if (::getppid() != parent) ::_exit(137);
}

std::string describe(const ProcessResult& result) {
  if (result.signal != 0)
    return fmt::format("signal {} ({})", result.signal, strsignal(result.signal));
  return fmt::format("exit code {}", result.exit_code);
}

std::string program_path() {
  std::error_code error;
  const auto file = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "moonshard";
  const auto near = std::filesystem::proximate(file, error);
  return !error && near.native().size() < file.native().size() ? near.string() : file.string();
}

std::string program_as_typed() {
  const std::string path = program_path();
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable != nullptr ? variable : "";
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    const auto file = std::filesystem::path(folder) / "moonshard";
    if (folder.empty() || ::access(file.c_str(), X_OK) != 0) continue;
    std::error_code ignored;
    return std::filesystem::equivalent(file, path, ignored) ? "moonshard" : path;
  }
  return path;
}

std::filesystem::path sibling_program(const std::string& name) {
  return install_prefix() / "bin" / name;
}

std::filesystem::path shared_files() {
  return install_prefix() / "share" / "moonshard";
}

void begin_counting_interrupts() {
  if (depth++ > 0) return;
  presses.store(0);
  last_signal.store(0);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction action {};
    action.sa_handler = &on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(kSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

void end_counting_interrupts() {
  if (depth == 0 || --depth > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

int num_interrupts() noexcept {
  return presses.load();
}

void repeat_interrupt() {
  if (const int signal = last_signal.exchange(0)) ::raise(signal);
}

}  // namespace moonshard::launch
