// Where a reader's bytes come from: memory, a file, or a compressed file that is inflated on the
// way. Nothing is held but a few blocks, so a file of gigabytes costs megabytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/input/control.h"
#include "runtime/input/open_file.h"

namespace moonshard {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Bytes that follow, at most `capacity`; 0 at the end. Throws IoError or Cancelled.
  virtual size_t read(char* to, size_t capacity) = 0;
  /// Bytes in all, when that is known; a hint for buffers, not guaranteed.
  virtual uint64_t size_hint() const { return 0; }
};

/// Bytes owned by the caller.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {}
  size_t read(char* to, size_t capacity) override;
  uint64_t size_hint() const override { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

/// A file as it is. Checks for cancellation at every block.
class FileSource final : public ByteSource {
 public:
  FileSource(OpenFile file, const ReadControl& control)
      : file_(std::move(file)), stop_(control.stop) {}
  size_t read(char* to, size_t capacity) override;
  uint64_t size_hint() const override { return file_.size(); }
  /// Bytes of the file that were taken so far; thread-safe.
  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  OpenFile file_;
  const std::atomic<bool>* stop_;
  std::atomic<uint64_t> taken_{0};
};

/// What a gzip file holds, members one after the other. Throws IoError where it is damaged; a
/// build without zlib refuses every one.
std::unique_ptr<ByteSource> inflated(std::unique_ptr<ByteSource> compressed,
                                     const std::string& where);

/// A file that a reader goes through once.
struct OpenText {
  std::unique_ptr<ByteSource> source;
  const FileSource* file = nullptr;  ///< below it: how much was taken
  uint64_t size = 0;                 ///< of the file, in bytes
};
/// Inflated where the file is compressed (by its first bytes), read ahead where it is worth a
/// thread.
OpenText open_text(OpenFile file, const ReadControl& control);

/// Reads ahead in a separate thread, by a block, so that reading and inflating run beside the
/// parser.
std::unique_ptr<ByteSource> read_ahead(std::unique_ptr<ByteSource> source);

}  // namespace moonshard
