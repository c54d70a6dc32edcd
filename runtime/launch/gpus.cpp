#include "runtime/launch/gpus.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "runtime/base/check.h"

namespace moonshard::launch {
namespace {

// Whether libtorch_cuda.so lies beside the libtorch_cpu.so that this process has loaded.
bool libtorch_has_cuda() {
  void* cpu_half = ::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (cpu_half == nullptr) return false;
  link_map* map = nullptr;
  const bool known = ::dlinfo(cpu_half, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr;
  const std::filesystem::path file = known ? map->l_name : "";
  ::dlclose(cpu_half);
  std::error_code ignored;
  return known && std::filesystem::exists(file.parent_path() / "libtorch_cuda.so", ignored);
}

}  // namespace

profile::GpuListing usable_gpus() {
  profile::GpuListing listing = profile::list_gpus();
  if (listing.gpus.empty()) return listing;
  if (!libtorch_has_cuda()) return {{}, "this LibTorch has no CUDA (no libtorch_cuda.so)"};
  listing.gpus = profile::visible_gpus(listing.gpus, std::getenv("CUDA_VISIBLE_DEVICES"));
  if (listing.gpus.empty()) listing.absence = "CUDA_VISIBLE_DEVICES hides all GPUs";
  return listing;
}

std::string gpu_lock_folder() {
  const char* given = std::getenv("MOONSHARD_LOCK_DIR");
  const std::string folder =
      given != nullptr && *given != '\0' ? given : fmt::format("/tmp/moonshard-{}", ::getuid());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw IoError(
        fmt::format("{}: cannot make the folder for GPU locks: {}; set MOONSHARD_LOCK_DIR", folder,
                    std::strerror(errno)));
  }
  // /tmp is shared: another user may have created the folder first, or a symlink in its place.
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid()) {
    throw IoError(fmt::format(
        "{}: expected a folder of this user for GPU locks, got another's; set MOONSHARD_LOCK_DIR",
        folder));
  }
  return folder;
}

}  // namespace moonshard::launch
