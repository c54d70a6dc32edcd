// A lock that is a file: held by one process, gone with it however it ends. The file's text says
// who holds it. Children do not inherit it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace moonshard::launch {

class FileLock {
 public:
  /// Takes the lock when nobody has it; else nothing, and `holder` is what its owner wrote. Throws
  /// IoError when the file cannot be made.
  static std::optional<FileLock> try_take(const std::filesystem::path& file,
                                          const std::string& own_text, std::string& holder);

  /// Gives it back and removes the file. Also done when the last copy of this object goes.
  void release() { held_.reset(); }

 private:
  struct Held;
  explicit FileLock(std::shared_ptr<Held> held) : held_(std::move(held)) {}
  std::shared_ptr<Held> held_;
};

}  // namespace moonshard::launch
