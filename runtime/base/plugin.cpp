#include "runtime/base/plugin.h"

#include <dlfcn.h>

#include "runtime/base/prefix.h"

namespace moonshard {

std::filesystem::path plugin_path(const std::string& name) {
  return install_prefix() / "lib" / ("lib" + name + ".so");
}

Plugin::Plugin(const std::string& name)
    : path_(plugin_path(name).string()), handle_(::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* reason = ::dlerror();
  absence_ = "no library " + path_ + ": " + (reason != nullptr ? reason : "unknown");
}

void* Plugin::address(const char* symbol) const {
  return handle_ != nullptr ? ::dlsym(handle_, symbol) : nullptr;
}

}  // namespace moonshard
