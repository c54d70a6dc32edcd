#include "runtime/weights/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/options.h"
#include "runtime/base/sha256.h"
#include "runtime/base/utf8.h"
#include "runtime/core/device.h"

namespace moonshard::weights {
namespace {

struct Dtype {
  const char* label;
  c10::ScalarType type;
};
constexpr std::array<Dtype, 10> kDtypes = {{
    {"BOOL", c10::ScalarType::Bool},
    {"U8", c10::ScalarType::Byte},
    {"I8", c10::ScalarType::Char},
    {"I16", c10::ScalarType::Short},
    {"I32", c10::ScalarType::Int},
    {"I64", c10::ScalarType::Long},
    {"F16", c10::ScalarType::Half},
    {"BF16", c10::ScalarType::BFloat16},
    {"F32", c10::ScalarType::Float},
    {"F64", c10::ScalarType::Double},
}};

std::string known_labels() {
  std::vector<const char*> labels;
  for (const Dtype& dtype : kDtypes) labels.push_back(dtype.label);
  return fmt::format("{}", fmt::join(labels, ", "));
}

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

c10::ScalarType dtype_from_label(const std::string& label, const std::string& where) {
  for (const Dtype& dtype : kDtypes) {
    if (label == dtype.label) return dtype.type;
  }
  throw IoError(fmt::format("{}: expected a dtype of {}, got {}; convert the file to one of them",
                            where, known_labels(), in_quotes(label)));
}

const char* dtype_label(c10::ScalarType type, const std::string& where) {
  for (const Dtype& dtype : kDtypes) {
    if (type == dtype.type) return dtype.label;
  }
  throw UsageError(fmt::format("{}: expected a tensor of {}, got {}; convert it first", where,
                               known_labels(), c10::toString(type)));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string unknown_tensor_message(const std::string& where, const std::string& name,
                                   std::vector<std::string> names) {
  // The nearest of a million names, or of hostile long ones, would take longer than it helps.
  constexpr size_t kMostCompared = 10'000, kLongestCompared = 128;
  const size_t count = names.size();
  names.resize(std::min(count, kMostCompared));
  std::erase_if(names, [](const std::string& other) { return other.size() > kLongestCompared; });
  const std::string near = nearest_name(name, names);
  return fmt::format("{}: expected the name of one of its {} tensors, got {}{}", where, count,
                     in_quotes(name),
                     near.empty() ? "" : fmt::format("; did you mean {}?", in_quotes(near)));
}

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
  result.data_start_ = kLengthBytes + header_bytes;
  std::string bytes(static_cast<size_t>(result.data_start_), '\0');
  result.file_.read_at(0, bytes.data(), result.data_start_, "header");
  result.header_ = parse_safetensors_header(std::string_view(bytes).substr(kLengthBytes),
                                            size - result.data_start_, where);
  result.sums_ = BlockSums::take(result.header_, bytes, where);
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

// The bytes of one tensor, each block checked when it is read.
class SafetensorsFile::TensorBytes {
 public:
  TensorBytes(const SafetensorsFile& file, const TensorEntry& entry)
      : file_(file),
        entry_(entry),
        place_(static_cast<size_t>(&entry - file.entries().data())),
        what_(fmt::format("tensor {}", in_quotes(entry.name))) {}

  void read(int64_t position, void* target, int64_t bytes) {
    auto* to = static_cast<char*>(target);
    if (!file_.has_sums()) return read_at(position, to, bytes);
    while (bytes > 0) {
      const int64_t block = position / BlockSums::kBlockBytes, from = start(block);
      const int64_t piece = std::min(bytes, end(block) - position);
      if (position == from && piece == end(block) - from) {
        read_at(from, to, piece);
        check(block, to);
      } else {
        hold(block);
        std::memcpy(to, held_bytes_.data() + (position - from), static_cast<size_t>(piece));
      }
      to += piece;
      position += piece;
      bytes -= piece;
    }
  }

  void check_blocks(int64_t position, int64_t bytes) {
    if (!file_.has_sums() || bytes == 0) return;
    const int64_t last = (position + bytes - 1) / BlockSums::kBlockBytes;
    for (int64_t block = position / BlockSums::kBlockBytes; block <= last; ++block) hold(block);
  }

 private:
  static int64_t start(int64_t block) { return block * BlockSums::kBlockBytes; }
  int64_t end(int64_t block) const { return std::min(start(block + 1), entry_.end - entry_.begin); }
  void read_at(int64_t position, char* target, int64_t bytes) const {
    file_.file_.read_at(file_.data_start_ + entry_.begin + position, target, bytes, what_);
  }
  void check(int64_t block, const void* data) const {
    file_.sums_->check(entry_, place_, block, data, file_.path().string());
  }
  // Of a block that is needed in part; the next piece often begins in the same one.
  void hold(int64_t block) {
    if (held_ == block) return;
    held_ = -1;
    held_bytes_.resize(static_cast<size_t>(end(block) - start(block)));
    read_at(start(block), held_bytes_.data(), end(block) - start(block));
    check(block, held_bytes_.data());
    held_ = block;
  }

  const SafetensorsFile& file_;
  const TensorEntry& entry_;
  size_t place_;
  std::string what_;
  int64_t held_ = -1;
  std::vector<char> held_bytes_;
};

void SafetensorsFile::check_range(const std::string& name, int64_t first, int64_t count) const {
  const TensorEntry& found = entry(name);
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(found.dtype));
  TensorBytes(*this, found).check_blocks(first * element_bytes, count * element_bytes);
}

std::string SafetensorsFile::sha256_of(int64_t begin, int64_t end) const {
  Sha256 sum;
  std::vector<char> piece(static_cast<size_t>(std::min(kPieceBytes, end - begin)));
  while (begin < end) {
    const int64_t bytes = std::min(kPieceBytes, end - begin);
    file_.read_at(begin, piece.data(), bytes, "checksum");
    sum.add(piece.data(), static_cast<size_t>(bytes));
    begin += bytes;
  }
  return sum.hex();
}

std::string SafetensorsFile::header_sha256() const {
  return sha256_of(0, data_start_);
}

std::string SafetensorsFile::data_sha256() const {
  return sha256_of(data_start_, file_.size());
}

std::string SafetensorsFile::whole_sha256() const {
  return sha256_of(0, file_.size());
}

void SafetensorsFile::fill(const TensorEntry& entry, const at::Tensor& target,
                           int64_t first) const {
  const at::NoGradGuard no_grad;
  TensorBytes source(*this, entry);
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
  int64_t position = first * element_bytes;
  const auto read_next = [&](const at::Tensor& block) {
    const auto bytes = block.numel() * element_bytes;
    source.read(position, block.data_ptr(), bytes);
    if (entry.dtype == at::kBool) {
      check_bools(block.data_ptr(), bytes,
                  fmt::format("{}: tensor {}", path().string(), in_quotes(entry.name)));
    }
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
