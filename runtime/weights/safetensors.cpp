#include "runtime/weights/safetensors.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "runtime/base/check.h"
#include "runtime/core/memory_errors.h"
#include "runtime/weights/labels.h"
#include "runtime/weights/tensor_pieces.h"

namespace moonshard::weights {
namespace {

constexpr int64_t kLengthBytes = 8;

// A C++ bool of another value than 0 or 1 has no defined meaning to the code that reads it.
void check_bools(const void* data, int64_t count, const std::string& where) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  const auto* bad = std::find_if(bytes, bytes + count, [](uint8_t byte) { return byte > 1; });
  if (bad == bytes + count) return;
  throw IoError(
      fmt::format("{}: expected bytes 0 and 1 for BOOL, got {}; the file is damaged", where, *bad));
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile result;
  result.file_ = ReadOnlyFile::open(path);
  const std::string where = path.string();
  const int64_t size = result.file_.size();
  if (size < kLengthBytes) {
    throw IoError(
        fmt::format("{}: expected a safetensors file of at least {} bytes, got {}; the file is "
                    "cut short: copy it again",
                    where, kLengthBytes, size));
  }
  uint64_t length = 0;
  result.file_.read_at(0, &length, kLengthBytes, "header length");
  // Checked before anything of that size is allocated.
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    throw IoError(fmt::format(
        "{}: expected a safetensors header of at most {} bytes, got {}; it is another format or "
        "the file is damaged",
        where, kMaxHeaderBytes, length));
  }
  const int64_t header_bytes = static_cast<int64_t>(length);
  if (header_bytes > size - kLengthBytes) {
    throw IoError(
        fmt::format("{}: expected a header of {} bytes, as its first 8 bytes say, got {} bytes in "
                    "the file; the file is cut short: copy it again",
                    where, header_bytes, size - kLengthBytes));
  }
  std::string text(static_cast<size_t>(header_bytes), '\0');
  result.file_.read_at(kLengthBytes, text.data(), header_bytes, "header");
  result.data_start_ = kLengthBytes + header_bytes;
  result.header_ = parse_safetensors_header(text, size - result.data_start_, where);
  return result;
}

const TensorEntry& SafetensorsFile::entry(const std::string& name) const {
  const TensorEntry* found = find(name);
  if (found != nullptr) return *found;
  std::vector<std::string> names;
  for (const TensorEntry& other : entries()) names.push_back(other.name);
  throw UsageError(unknown_tensor_message(path().string(), name, std::move(names)));
}

at::Tensor SafetensorsFile::read(const std::string& name) const {
  const TensorEntry& found = entry(name);
  try {
    const at::Tensor tensor = at::empty(found.shape, at::TensorOptions().dtype(found.dtype));
    fill(found, tensor);
    return tensor;
  } catch (...) {
    rethrow_memory_errors();
  }
}

void SafetensorsFile::read_into(const std::string& name, const at::Tensor& target) const {
  const TensorEntry& found = entry(name);
  MS_CHECK(target.defined() && target.sizes() == at::IntArrayRef(found.shape),
           "{}: tensor {}: expected a target of shape {}, got {}; the file belongs to another size "
           "of model",
           path().string(), in_quotes(name), shape_text(found.shape),
           target.defined() ? shape_text(target.sizes().vec()) : "none");
  if (target.is_meta()) return;
  try {
    fill(found, target);
  } catch (...) {
    rethrow_memory_errors();
  }
}

void SafetensorsFile::read_range(const std::string& name, int64_t first,
                                 const at::Tensor& target) const {
  const TensorEntry& found = entry(name);
  const int64_t elements =
      (found.end - found.begin) / static_cast<int64_t>(c10::elementSize(found.dtype));
  MS_CHECK(target.dim() == 1 && first >= 0 && first <= elements - target.numel(),
           "{}: tensor {}: expected a range within its {} elements, got {} from {}",
           path().string(), in_quotes(name), elements, target.numel(), first);
  try {
    fill(found, target, first);
  } catch (...) {
    rethrow_memory_errors();
  }
}

void SafetensorsFile::fill(const TensorEntry& entry, const at::Tensor& target,
                           int64_t first) const {
  const at::NoGradGuard no_grad;
  const std::string what = fmt::format("tensor {}", in_quotes(entry.name));
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
  int64_t position = data_start_ + entry.begin + first * element_bytes;
  const auto read_next = [&](const at::Tensor& block) {
    const auto bytes = block.numel() * element_bytes;
    file_.read_at(position, block.data_ptr(), bytes, what);
    if (entry.dtype == at::kBool)
      check_bools(block.data_ptr(), bytes, fmt::format("{}: {}", path().string(), what));
    position += bytes;
  };
  if (target.is_cpu() && target.scalar_type() == entry.dtype && target.is_contiguous()) {
    if (target.numel() > 0) read_next(target);
    return;
  }
  const int64_t most = std::min(kPieceBytes / element_bytes, target.numel());
  const at::Tensor buffer = at::empty({most}, at::TensorOptions().dtype(entry.dtype));
  for_each_piece(target, most, [&](const at::Tensor& piece) {
    const at::Tensor block = buffer.narrow(0, 0, piece.numel());
    read_next(block);
    piece.copy_(block.view(piece.sizes()));
  });
}

}  // namespace moonshard::weights
