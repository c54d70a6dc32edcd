#include "runtime/weights/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <system_error>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "kernels/split_float/split_float.h"
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

namespace fs = std::filesystem;

int64_t file_bytes(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

void check_tensors(const NamedTensors& tensors, const std::string& where) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    MS_CHECK(names.insert(name).second, "{}: expected each name once, got {} twice; rename one",
             where, in_quotes(name));
    MS_CHECK(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_meta(),
             "{}: tensor {}: expected a dense tensor with values, got {}; make one first", where,
             in_quotes(name),
             !tensor.defined()  ? "none"
             : tensor.is_meta() ? "only a shape (device meta)"
                                : "a sparse one");
    MS_CHECK(static_cast<size_t>(tensor.dim()) <= kMaxRank,
             "{}: tensor {}: expected at most {} dimensions, got {}; reshape it", where,
             in_quotes(name), kMaxRank, tensor.dim());
    dtype_label(tensor.scalar_type(), fmt::format("{}: tensor {}", where, in_quotes(name)));
  }
}

// Writes header and data to a temporary beside the path; the caller gives it its name.
StagedFile stage(const fs::path& path, const NamedTensors& tensors, const Metadata& metadata,
                 Sha256* sum = nullptr, const LowHalves& low_halves = {},
                 Access access = Access::Shared) {
  const at::NoGradGuard no_grad;
  std::vector<TensorEntry> entries;
  int64_t position = 0;
  for (const auto& [name, tensor] : tensors) {
    const at::ScalarType type = low_halves.contains(name) ? at::kFloat : tensor.scalar_type();
    const int64_t end = position + tensor.numel() * static_cast<int64_t>(c10::elementSize(type));
    entries.push_back({name, tensor.sizes().vec(), position, end, type});
    position = end;
  }
  const std::string header = make_safetensors_header(entries, metadata, path.string());
  StagedFile file(path, StagedFile::OnInterrupt::Stop, access);
  const auto write = [&](const void* data, int64_t bytes) {
    if (sum != nullptr) sum->add(data, static_cast<size_t>(bytes));
    file.write(data, bytes);
  };
  write(header.data(), static_cast<int64_t>(header.size()));
  for (const auto& [name, tensor] : tensors) {
    const auto most = kPieceBytes / static_cast<int64_t>(tensor.element_size());
    const auto low = low_halves.find(name);
    int64_t written = 0;
    for_each_piece(tensor, most, [&](const at::Tensor& piece) {
      // Lazily negated and conjugated views would give other bytes than their values.
      at::Tensor block = piece.to(at::kCPU).resolve_neg().resolve_conj().contiguous();
      if (low != low_halves.end()) {
        const at::Tensor half = low->second.view(-1).narrow(0, written, block.numel());
        block = kernels::joined_float(block, half.to(at::kCPU));
        written += block.numel();
      }
      write(block.const_data_ptr(), file_bytes(block));
    });
  }
  file.finish();
  return file;
}

std::vector<NamedTensors> split(const NamedTensors& tensors, int64_t max_shard_bytes) {
  std::vector<NamedTensors> shards(1);
  int64_t used = 0;
  for (const auto& named : tensors) {
    const int64_t bytes = file_bytes(named.second);
    if (!shards.back().empty() && bytes > max_shard_bytes - used) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(named);
    used += bytes;
  }
  return shards;
}

bool is_digits(std::string_view text) {
  return text.size() == 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// model-00001-of-00003.safetensors
bool is_shard_name(std::string_view name) {
  return name.size() == 32 && name.starts_with("model-") && is_digits(name.substr(6, 5)) &&
         name.substr(11, 4) == "-of-" && is_digits(name.substr(15, 5)) &&
         name.substr(20) == ".safetensors";
}

// What an earlier save left would be read along with, or instead of, the new files.
void remove_old_weights(const fs::path& folder) {
  std::vector<fs::path> old;
  for (const auto& item : fs::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    if (name == kSingleFileName || name == kIndexFileName || is_shard_name(name))
      old.push_back(item.path());
  }
  for (const fs::path& path : old) {
    std::error_code error;
    fs::remove(path, error);
    if (error) {
      throw IoError(fmt::format("{}: cannot remove the old file: {}; remove it by hand",
                                path.string(), error.message()));
    }
  }
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

void write_safetensors(const fs::path& path, const NamedTensors& tensors, const Metadata& metadata,
                       Sha256* sum, const LowHalves& low_halves, Access access) {
  check_tensors(tensors, path.string());
  try {
    StagedFile file = stage(path, tensors, metadata, sum, low_halves, access);
    file.commit();
  } catch (...) {
    rethrow_memory_errors();
  }
  sync_folder(path.parent_path());
}

std::vector<std::string> write_sharded(const fs::path& folder, const NamedTensors& tensors,
                                       int64_t max_shard_bytes, const Metadata& metadata) {
  MS_CHECK(max_shard_bytes > 0, "{}: expected max_shard_bytes > 0, got {}; 5e9 is usual",
           folder.string(), max_shard_bytes);
  check_tensors(tensors, folder.string());
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw IoError(fmt::format("{}: cannot make the folder: {}; choose one you may write to",
                              folder.string(), error.message()));
  }
  const std::vector<NamedTensors> shards = split(tensors, max_shard_bytes);
  MS_CHECK(shards.size() <= 99'999,
           "{}: expected at most 99999 shards, got {}; raise "
           "max_shard_bytes",
           folder.string(), shards.size());
  std::vector<std::string> names;
  std::vector<StagedFile> files;
  std::map<std::string, std::string> weight_map;
  int64_t total = 0;
  try {
    for (size_t i = 0; i < shards.size(); ++i) {
      names.push_back(shards.size() == 1
                          ? kSingleFileName
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
      files.push_back(stage(folder / names.back(), shards[i], metadata));
      for (const auto& [name, tensor] : shards[i]) {
        weight_map[name] = names.back();
        total += file_bytes(tensor);
      }
    }
  } catch (...) {
    rethrow_memory_errors();
  }
  // From here on only names change. A crash in between leaves too few files, which readers refuse,
  // never a mixture of two saves.
  remove_old_weights(folder);
  for (StagedFile& file : files) file.commit();
  sync_folder(folder);
  if (shards.size() > 1) {
    const nlohmann::json index = {{"metadata", {{"total_size", total}}},
                                  {"weight_map", weight_map}};
    write_file_atomically(folder / kIndexFileName, index.dump(2) + "\n");
  }
  return names;
}

}  // namespace moonshard::weights
