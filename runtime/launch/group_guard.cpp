#include "runtime/launch/group_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/check.h"

namespace moonshard::launch {
namespace {

[[noreturn]] void fail_to_guard(const char* what) {
  throw IoError(
      fmt::format("launch: no {} to guard the ranks: {}; raise 'ulimit -n' or 'ulimit -u'", what,
                  std::strerror(errno)));
}

// After fork in a process with threads: system calls only.
[[noreturn]] void keep_watch(int pipe) {
  ::setsid();  // the terminal's Ctrl-C is not for us
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  ::dup2(pipe, 0);
  ::syscall(SYS_close_range, 1u, ~0u, 0u);  // the launcher's output and sockets end with it
  static pid_t groups[kMaxRanks];
  int count = 0;
  pid_t number = 0;
  while (true) {
    const ssize_t got = ::read(0, &number, sizeof number);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof number) break;
    if (number > 0 && count < kMaxRanks) groups[count++] = number;
    for (int i = 0; number < 0 && i < count; ++i)
      if (groups[i] == -number) groups[i] = groups[--count];
  }
  for (int i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

GroupGuard::GroupGuard() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_to_guard("pipe");
  child_ = ::fork();
  if (child_ == 0) keep_watch(ends[0]);
  ::close(ends[0]);
  tell_ = Descriptor(ends[1]);
  if (child_ < 0) fail_to_guard("process");
}

GroupGuard::~GroupGuard() {
  tell_.close();
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void GroupGuard::tell(pid_t number) {
  const ssize_t written = ::write(tell_.number(), &number, sizeof number);
  (void)written;  // a guard that was killed guards nothing; the job goes on
}

}  // namespace moonshard::launch
