#include "runtime/base/prefix.h"

#include <cstdlib>

#include <dlfcn.h>

namespace moonshard {
namespace {

std::filesystem::path chosen_prefix;

}  // namespace

void set_install_prefix(const std::filesystem::path& folder) {
  chosen_prefix = folder;
}

std::filesystem::path install_prefix() {
  if (!chosen_prefix.empty()) return chosen_prefix;
  if (const char* from_environment = std::getenv("MOONSHARD_PREFIX")) return from_environment;
  Dl_info info{};
  std::filesystem::path file;
  if (dladdr(reinterpret_cast<const void*>(&install_prefix), &info) != 0 &&
      info.dli_fname != nullptr) {
    file = info.dli_fname;
  }
  std::error_code error;
  // For code inside the main program dladdr may give argv[0] as typed; /proc knows better.
  if (file.extension() != ".so") file = std::filesystem::read_symlink("/proc/self/exe", error);
  file = std::filesystem::absolute(file, error);
  return file.parent_path().parent_path();
}

}  // namespace moonshard
