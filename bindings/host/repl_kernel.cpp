// moonshard kernel start: Jupyter's protocol is Python's ipykernel, which drives `moonshard repl
// --json` as its child (bindings/python/moonshard/kernel.py). This process becomes that one, so
// that signals and the end of the kernel need no middleman.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "bindings/host/verbs.h"
#include "runtime/base/check.h"
#include "runtime/base/prefix.h"
#include "runtime/launch/process.h"

namespace moonshard::host {
namespace {

// In a wheel beside the program's folders, else where an installation has it, else in the sources.
std::filesystem::path kernel_file() {
  const std::filesystem::path shared = launch::shared_files();
  std::error_code ignored;
  const auto sources = std::filesystem::canonical(shared / "scripts", ignored).parent_path();
  for (const auto& file :
       {shared.parent_path().parent_path() / "kernel.py", shared / "python" / "kernel.py",
        sources / "bindings" / "python" / "moonshard" / "kernel.py"}) {
    if (std::filesystem::exists(file, ignored)) return file;
  }
  throw IoError(
      fmt::format("kernel start: expected kernel.py in {}, got nothing; install moonshard "
                  "whole, or its wheel",
                  (shared / "python").string()));
}

}  // namespace

int kernel_command(const Verb& verb, const Words& words) {
  if (words.empty() || words[0] != "start") return lua_command(verb, words);
  MS_CHECK(words.size() == 3 && words[1] == "--connection-file",
           "kernel start: expected --connection-file FILE, which Jupyter gives, got {} words; to "
           "make a kernel known to Jupyter: moonshard kernel install --user",
           words.size() - 1);
  const char* chosen = std::getenv("MOONSHARD_PYTHON");
  const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  const std::string file = kernel_file().string();
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  ::setenv("MOONSHARD_PROGRAM", program.c_str(), 1);
  std::vector<std::string> arguments{python, file, "-f", words[2]};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execvp(python.c_str(), argv.data());
  throw IoError(
      fmt::format("kernel start: cannot start {}: {}; set MOONSHARD_PYTHON to a Python "
                  "that has ipykernel",
                  python, std::strerror(errno)));
}

}  // namespace moonshard::host
