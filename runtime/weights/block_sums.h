// Checksums inside the safetensors files that moonshard writes: CRC-32C of the header and of every
// block of every tensor, as one text in the header's metadata, which other readers pass over.
//
// A tensor in blocks: a rank that reads its part of a large tensor checks what it reads, without
// reading the rest. The text begins with a mark of its own, so that damage to its key alone does
// not pass for a file without checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/weights/safetensors_header.h"

namespace moonshard::weights {

class BlockSums {
 public:
  static constexpr const char* kKey = "moonshard.crc32c";
  static constexpr int64_t kBlockBytes = 4 << 20;

  /// Of a file to be written.
  explicit BlockSums(const std::vector<TensorEntry>& entries);
  /// The bytes of all tensors, piece after piece, in the order of the file.
  void add(const void* data, int64_t bytes);
  /// The header with the sums of what was added; its length does not depend on them, so that it can
  /// be written twice: before the data, to hold its place, and after it.
  std::string header(const std::vector<TensorEntry>& entries, Metadata metadata,
                     const std::string& where) const;

  /// Takes the sums out of the metadata of a header; none in a file that another program wrote.
  /// `bytes` are those of length and text. Throws IoError if the header is not as it was written.
  static std::optional<BlockSums> take(SafetensorsHeader& header, const std::string& bytes,
                                       const std::string& where);

  /// Throws IoError unless these are the bytes of that block of that tensor (by its place in the
  /// file).
  void check(const TensorEntry& entry, size_t place, int64_t block, const void* data,
             const std::string& where) const;

 private:
  BlockSums() = default;
  void place_tensors(const std::vector<TensorEntry>& entries);
  std::string text() const;

  std::vector<uint32_t> sums_;
  std::vector<size_t> first_;     ///< by tensor: the place of its first block; one more at the end
  std::vector<int64_t> bytes_;    ///< by tensor
  size_t tensor_ = 0, next_ = 0;  ///< where the next byte to be added belongs
  int64_t added_ = 0;             ///< bytes of that tensor
};

}  // namespace moonshard::weights
