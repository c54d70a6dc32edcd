#include "runtime/launch/process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "runtime/core/check.h"
#include "runtime/core/interrupt.h"

extern char** environ;

namespace moonshard::launch {
namespace {

using namespace std::chrono_literals;
constexpr const char* kParentVariable = "MOONSHARD_PARENT_PID";

// The parts of posix_spawn that must be released, whatever happens between.
class SpawnSettings {
 public:
  explicit SpawnSettings(const std::filesystem::path& log) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files_, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    posix_spawn_file_actions_adddup2(&files_, 1, 2);
    posix_spawnattr_init(&attributes_);
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);  // a parent that ignores or handles it must not hand that down
    sigaddset(&defaults, SIGPIPE);
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

pid_t spawn(const std::vector<std::string>& arguments, const std::filesystem::path& log) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> variables{fmt::format("{}={}", kParentVariable, ::getpid())};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, kParentVariable, std::strlen(kParentVariable)) != 0)
      variables.emplace_back(*entry);
  }
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);

  // Opened here first: posix_spawn would blame the program for a log that cannot be written.
  const int log_file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_file < 0) {
    throw IoError(fmt::format("{}: cannot write the log: {}; check the folder", log.string(),
                              std::strerror(errno)));
  }
  ::close(log_file);
  SpawnSettings settings(log);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &settings.files_, &settings.attributes_,
                                argv.data(), envp.data());
  if (error != 0) {
    throw IoError(fmt::format(
        "{}: cannot start: {}; build it, or set MOONSHARD_PREFIX to where moonshard is installed",
        arguments[0], std::strerror(error)));
  }
  return child;
}

// Waits for the child, at most until the deadline. True when it ended.
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

std::filesystem::path chosen_prefix;

std::filesystem::path prefix() {
  if (!chosen_prefix.empty()) return chosen_prefix;
  if (const char* from_environment = std::getenv("MOONSHARD_PREFIX")) return from_environment;
  Dl_info info{};
  std::filesystem::path file;
  if (dladdr(reinterpret_cast<const void*>(&run_process), &info) != 0 &&
      info.dli_fname != nullptr) {
    file = info.dli_fname;
  }
  std::error_code error;
  // For code inside the main program dladdr may give argv[0] as typed; /proc knows better.
  if (file.extension() != ".so") file = std::filesystem::read_symlink("/proc/self/exe", error);
  file = std::filesystem::absolute(file, error);
  return file.parent_path().parent_path();
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments,
                          const std::filesystem::path& log, const std::function<void()>& on_tick) {
  const pid_t child = spawn(arguments, log);
  int status = 0;
  try {
    while (!wait_until(child, status, std::chrono::steady_clock::now() + 100ms)) {
      throw_if_interrupted();
      if (on_tick) on_tick();
    }
  } catch (...) {
    end_group(child, status);
    throw;
  }
  ProcessResult result;
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

void die_with_parent() {
  const char* parent = std::getenv(kParentVariable);
  if (parent == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the line above took effect.
  if (::getppid() != std::atol(parent)) ::_exit(137);
}

std::string describe(const ProcessResult& result) {
  if (result.signal != 0)
    return fmt::format("signal {} ({})", result.signal, strsignal(result.signal));
  return fmt::format("exit code {}", result.exit_code);
}

void set_prefix(const std::filesystem::path& folder) {
  chosen_prefix = folder;
}

std::filesystem::path sibling_program(const std::string& name) {
  return prefix() / "bin" / name;
}

std::filesystem::path shared_files() {
  return prefix() / "share" / "moonshard";
}

}  // namespace moonshard::launch
