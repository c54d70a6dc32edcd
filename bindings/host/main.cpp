// The moonshard program. Exit codes: 0 good, 1 error, 2 usage, 3 out of memory, 4 verification
// failed, 5 sweep finished with failed points, 130 interrupted.
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "bindings/host/ranks_command.h"
#include "bindings/host/verbs.h"
#include "bindings/lua_error.h"
#include "runtime/base/check.h"
#include "runtime/comm/world.h"
#include "runtime/launch/machine.h"
#include "runtime/launch/process.h"
#include "runtime/profile/memory.h"
#include "runtime/profile/trace_request.h"

namespace moonshard::host {
namespace {

// Prints the error, and posts it to the other ranks of the job, if any.
int fail(int code, const std::string& message) {
  std::cerr << "moonshard: " << message << "\n";
  end_rank(message);
  return code;
}

int run_program(const Words& words) try {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    std::cout << program_help();
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    std::cout << "moonshard " << launch::version() << "\n";
    return 0;
  }
  const Verb& verb = find_verb(words[0]);
  profile::install_cpu_memory_hook();
  comm::take_own_gpu();
  profile::listen_for_trace_requests();
  if (verb.may_be_rank) end_with_launcher();
  const int code = run_verb(verb, Words(words.begin() + 1, words.end()));
  end_rank(code == 0 ? "" : fmt::format("exit code {}", code));
  return code;
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
}  // namespace moonshard::host

int main(int argc, char** argv) {
  using namespace moonshard;
  launch::die_with_parent();
  const int code = host::run_program(Words(argv + 1, argv + argc));
  std::cout.flush();
  // A failed write to standard output (full disk, closed pipe) must not look like success.
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::cerr
        << "moonshard: standard output: cannot write: the disk is full or the pipe is closed\n";
    return code != 0 ? code : 1;
  }
  if (host::has_failed_as_rank()) ::_exit(code);
  return code;
}
