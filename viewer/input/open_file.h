// Opens files of untrusted folders: plain files only, never a pipe or a device
// (they would block), and never through a link that leads out of the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moonshard::viewer {

/// Owns a file descriptor; -1 for none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int value = -1) : value_(value) {}
  ~FileDescriptor() { reset(-1); }
  FileDescriptor(FileDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  int get() const { return value_; }
  void reset(int value);

 private:
  int value_;
};

/// A plain file, open for reading. A file that shrinks meanwhile simply ends early.
class OpenFile {
 public:
  OpenFile(int descriptor, std::string name, uint64_t size)
      : descriptor_(descriptor), name_(std::move(name)), size_(size) {}

  /// Bytes that follow, at most `capacity`; 0 at the end. Throws IoError.
  size_t read(char* to, size_t capacity);
  /// Moves to a place in the file.
  void seek(uint64_t offset);
  /// All of it. Throws IoError above max_bytes.
  std::string read_all(size_t max_bytes);

  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }  ///< when it was opened

 private:
  FileDescriptor descriptor_;
  std::string name_;
  uint64_t size_ = 0;
};

/// Opens what the user named; links are followed. Throws IoError when it is no plain file.
OpenFile open_plain_file(const std::filesystem::path& path);

/// The files of one folder; nothing outside of it can be opened.
class InsideFolder {
 public:
  explicit InsideFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Nothing when nothing is there. Throws IoError for what leads out or is no plain file.
  std::optional<OpenFile> open(const std::filesystem::path& relative) const;
  /// Sorted names of plain files in a folder within, with one of the endings; at most `most`.
  std::vector<std::string> names(const std::filesystem::path& relative,
                                 const std::vector<std::string>& endings,
                                 size_t most = 10'000) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace moonshard::viewer
