// Safetensors files. Those to be read are untrusted: open() checks the whole header against the
// file's size (safetensors_header.h); afterwards tensors are read one by one, by position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "runtime/base/files.h"
#include "runtime/weights/block_sums.h"
#include "runtime/weights/safetensors_header.h"

namespace moonshard::weights {

/// "F32" and back; the list is closed. Throws IoError / UsageError naming what was given.
c10::ScalarType dtype_from_label(const std::string& label, const std::string& where);
const char* dtype_label(c10::ScalarType type, const std::string& where);

/// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);

/// What to say when none of `names` is the one asked for; offers the nearest.
std::string unknown_tensor_message(const std::string& where, const std::string& name,
                                   std::vector<std::string> names);

class SafetensorsFile {
 public:
  /// Throws IoError with the reason if it is not a complete safetensors file.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  /// In the order of their bytes.
  const std::vector<TensorEntry>& entries() const { return header_.entries; }
  const Metadata& metadata() const { return header_.metadata; }
  /// Null when there is none.
  const TensorEntry* find(std::string_view name) const { return header_.find(name); }

  /// A new tensor on the CPU.
  at::Tensor read(const std::string& name) const;
  /// Fills a tensor of the same shape and of any dtype, device and strides. Converts in pieces: a
  /// second copy of the whole never exists. On device "meta" only the shape is checked. A tensor
  /// that could not be read to its end holds old and new elements.
  void read_into(const std::string& name, const at::Tensor& target) const;
  /// Fills a tensor [n] with elements first … first + n - 1 of the flattened tensor, likewise.
  void read_range(const std::string& name, int64_t first, const at::Tensor& target) const;

  /// Whether it has checksums: what is read is then checked block by block, and damage is an
  /// IoError that names the tensor.
  bool has_sums() const { return sums_.has_value(); }
  /// Reads these elements, to check them; nothing if the file has no checksums.
  void check_range(const std::string& name, int64_t first, int64_t count) const;
  /// Of everything before the data.
  std::string header_sha256() const;
  /// Of all that follows, and of the whole file; read it to its end.
  std::string data_sha256() const;
  std::string whole_sha256() const;
  int64_t bytes() const { return file_.size(); }

 private:
  class TensorBytes;

  const TensorEntry& entry(const std::string& name) const;
  void fill(const TensorEntry& entry, const at::Tensor& target, int64_t first = 0) const;
  std::string sha256_of(int64_t begin, int64_t end) const;

  ReadOnlyFile file_;
  SafetensorsHeader header_;
  std::optional<BlockSums> sums_;
  int64_t data_start_ = 0;
};

// A tensor in pieces of bounded size, in the order of its elements: files of any size are converted
// without a second copy of a whole tensor.

inline constexpr int64_t kPieceBytes = 16 << 20;

/// Calls visit(piece) with views of at most `max_elements` elements each. The views may have any
/// shape and strides; one after another they are the tensor in row-major order.
template <class F>
void for_each_piece(const at::Tensor& tensor, int64_t max_elements, const F& visit) {
  if (tensor.numel() == 0) return;
  if (tensor.numel() <= max_elements) {
    visit(tensor);
    return;
  }
  // A tensor with elements in one block is cut anywhere, every other one along its first dimension.
  const at::Tensor rows = tensor.is_contiguous() ? tensor.view(-1) : tensor;
  const int64_t count = rows.size(0), row_elements = rows.numel() / count;
  if (row_elements > max_elements) {
    for (int64_t i = 0; i < count; ++i) for_each_piece(rows.select(0, i), max_elements, visit);
    return;
  }
  const int64_t step = std::max<int64_t>(1, max_elements / row_elements);
  for (int64_t i = 0; i < count; i += step) visit(rows.narrow(0, i, std::min(step, count - i)));
}

// Writers of safetensors files. Files are written atomically; a set of shards never mixes old
// and new ones.

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
/// By name: the low half of a tensor that is given as its high half. The file has float32
/// (kernels/split_float/split_float.h).
using LowHalves = std::map<std::string, at::Tensor>;

/// The names under which Hugging Face folders keep weights.
inline constexpr const char* kSingleFileName = "model.safetensors";
inline constexpr const char* kIndexFileName = "model.safetensors.index.json";

/// Other libraries take only files that name their framework.
inline const Metadata kPortableMetadata = {{"format", "pt"}};

struct WriteOptions {
  LowHalves low_halves = {};
  Access access = Access::Shared;
  bool sum_data = false;  ///< a SHA-256 of the data as well
};

/// What was written, of which the disk may make something else.
struct WrittenFile {
  int64_t bytes = 0;
  std::string header_sha256;  ///< of everything before the data; it has the CRC-32C of all blocks
  std::string data_sha256;    ///< if it was asked for
};

/// Writes tensors in the order given, from any device and with any strides, in pieces: host memory
/// stays bounded. Throws UsageError for names and dtypes no reader takes, IoError when writing
/// fails; an older file then stays as it was. The file has its checksums in it (block_sums.h).
WrittenFile write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                              const Metadata& metadata = kPortableMetadata,
                              const WriteOptions& options = {});

/// Fills a folder: model.safetensors when all fits into `max_shard_bytes`, else
/// model-00001-of-0000N.safetensors … and model.safetensors.index.json. Replaces the weights that
/// were there under these names. A tensor larger than a shard gets its own shard. Returns the
/// names of the files of weights.
std::vector<std::string> write_sharded(const std::filesystem::path& folder,
                                       const NamedTensors& tensors, int64_t max_shard_bytes,
                                       const Metadata& metadata = kPortableMetadata);

}  // namespace moonshard::weights
