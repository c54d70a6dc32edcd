// A lock file: held by one process, released however that process ends. The file's text says who
// holds it. Children do not inherit it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace moonshard::launch {

class FileLock {
 public:
  /// Takes the lock if it is free; else empty, and `holder` is what its owner wrote. Throws IoError
  /// when the file cannot be made.
  static std::optional<FileLock> try_take(const std::filesystem::path& file,
                                          const std::string& own_text, std::string& holder);

  /// Releases it and removes the file. Also done when the last copy of this object is destroyed.
  void release() { held_.reset(); }

 private:
  struct Held;
  explicit FileLock(std::shared_ptr<Held> held) : held_(std::move(held)) {}
  std::shared_ptr<Held> held_;
};

}  // namespace moonshard::launch
