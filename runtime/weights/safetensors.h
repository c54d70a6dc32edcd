// Reader of untrusted safetensors files. open() checks the whole header against the file's size
// (safetensors_header.h); afterwards tensors are read one by one, by position.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/base/read_file.h"
#include "runtime/weights/safetensors_header.h"

namespace moonshard::weights {

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

 private:
  const TensorEntry& entry(const std::string& name) const;
  void fill(const TensorEntry& entry, const at::Tensor& target, int64_t first = 0) const;

  ReadOnlyFile file_;
  SafetensorsHeader header_;
  int64_t data_start_ = 0;
};

}  // namespace moonshard::weights
