// Opens files of untrusted folders: plain files only, never a pipe or a device
// (they would block), and never through a link that leads out of the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/records/point_index.h"

namespace moonshard {

/// A plain file, open for reading. A file that shrinks meanwhile simply ends early.
class OpenFile {
 public:
  OpenFile(Descriptor descriptor, std::string name, uint64_t size)
      : descriptor_(std::move(descriptor)), name_(std::move(name)), size_(size) {}
  /// Bytes that the caller owns, read as a file of that name would be: the readers are tried on a
  /// hundred million inputs without a system call.
  OpenFile(std::string_view bytes, std::string name)
      : name_(std::move(name)), size_(bytes.size()), bytes_(bytes) {}

  /// Bytes that follow, at most `capacity`; 0 at the end. Throws IoError.
  size_t read(char* to, size_t capacity);
  /// Moves to a place in the file.
  void seek(uint64_t offset);
  /// All of it. Throws IoError above max_bytes.
  std::string read_all(size_t max_bytes);

  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }  ///< when it was opened

 private:
  Descriptor descriptor_;  // none: the bytes are in memory
  std::string name_;
  uint64_t size_ = 0;
  std::string_view bytes_;
  size_t at_ = 0;  // in bytes_
};

/// The path from the root; as it was given where the system does not say.
std::string whole_path(const std::string& path);

/// A number that changes with the time and the size of a file or folder; 0 where there is none.
uint64_t stamp_of(const std::filesystem::path& path);

/// Opens what the user named; links are followed. Throws IoError when it is no plain file.
OpenFile open_plain_file(const std::filesystem::path& path);

/// The files of one folder; nothing outside of it can be opened. What derives from it may hold them
/// elsewhere, in memory.
class InsideFolder {
 public:
  explicit InsideFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  virtual ~InsideFolder() = default;
  InsideFolder(const InsideFolder&) = delete;
  InsideFolder& operator=(const InsideFolder&) = delete;

  const std::filesystem::path& path() const { return folder_; }
  /// Nothing when nothing is there. Throws IoError for what leads out or is no plain file.
  virtual std::optional<OpenFile> open(const std::filesystem::path& relative) const;
  /// Size and time of a plain file; nothing where there is none. A link is none.
  virtual std::optional<records::RecordStamp> stamp(const std::filesystem::path& relative) const;
  /// Sorted names of plain files in a folder within, with one of the endings; at most 10,000.
  virtual std::vector<std::string> names(const std::filesystem::path& relative,
                                         const std::vector<std::string>& endings) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace moonshard
