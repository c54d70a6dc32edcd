// Our own shared libraries, loaded on demand: what needs CUDA at link time lives in them, so that
// the program itself starts on any machine.
#pragma once

#include <filesystem>
#include <string>

namespace moonshard {

/// Where the library of that name is installed, whether it is there or not.
std::filesystem::path plugin_path(const std::string& name);

class Plugin {
 public:
  /// Loads <prefix>/lib/lib<name>.so. Never throws: absence() says what went wrong.
  explicit Plugin(const std::string& name);

  const std::string& path() const { return path_; }
  /// Why the library is not there; empty when it is loaded.
  const std::string& absence() const { return absence_; }
  /// Null when the library has no such symbol.
  template <class Function>
  Function* function(const char* symbol) const {
    return reinterpret_cast<Function*>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;

  std::string path_, absence_;
  void* handle_ = nullptr;
};

}  // namespace moonshard
