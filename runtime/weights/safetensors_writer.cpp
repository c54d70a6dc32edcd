#include <map>
#include <set>
#include <system_error>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "kernels/split_float/split_float.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/sha256.h"
#include "runtime/base/utf8.h"
#include "runtime/core/device.h"
#include "runtime/weights/block_sums.h"
#include "runtime/weights/folder_sums.h"
#include "runtime/weights/safetensors.h"

namespace moonshard::weights {
namespace {

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
                 const WriteOptions& options = {}, WrittenFile* written = nullptr) {
  const at::NoGradGuard no_grad;
  std::vector<TensorEntry> entries;
  int64_t position = 0;
  for (const auto& [name, tensor] : tensors) {
    const at::ScalarType type =
        options.low_halves.contains(name) ? at::kFloat : tensor.scalar_type();
    const int64_t end = position + tensor.numel() * static_cast<int64_t>(c10::elementSize(type));
    entries.push_back({name, tensor.sizes().vec(), position, end, type});
    position = end;
  }
  BlockSums sums(entries);
  std::string header = sums.header(entries, metadata, path.string());
  const auto header_bytes = static_cast<int64_t>(header.size());
  Sha256 data_sum;
  StagedFile file(path, StagedFile::OnInterrupt::Stop, options.access);
  file.write(header.data(), header_bytes);
  for (const auto& [name, tensor] : tensors) {
    const auto most = kPieceBytes / static_cast<int64_t>(tensor.element_size());
    const auto low = options.low_halves.find(name);
    int64_t done = 0;
    for_each_piece(tensor, most, [&](const at::Tensor& piece) {
      // Lazily negated and conjugated views would give other bytes than their values.
      at::Tensor block = piece.to(at::kCPU).resolve_neg().resolve_conj().contiguous();
      if (low != options.low_halves.end()) {
        const at::Tensor half = low->second.view(-1).narrow(0, done, block.numel());
        block = kernels::joined_float(block, half.to(at::kCPU));
        done += block.numel();
      }
      sums.add(block.const_data_ptr(), file_bytes(block));
      if (options.sum_data)
        data_sum.add(block.const_data_ptr(), static_cast<size_t>(file_bytes(block)));
      file.write(block.const_data_ptr(), file_bytes(block));
    });
  }
  header = sums.header(entries, metadata, path.string());
  file.write_at(0, header.data(), header_bytes);
  file.finish();
  if (written != nullptr) {
    Sha256 header_sum;
    header_sum.add(header);
    *written = {header_bytes + position, header_sum.hex(),
                options.sum_data ? data_sum.hex() : std::string()};
  }
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
    if (name == kSingleFileName || name == kIndexFileName || name == kFolderSumsName ||
        is_shard_name(name))
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

WrittenFile write_safetensors(const fs::path& path, const NamedTensors& tensors,
                              const Metadata& metadata, const WriteOptions& options) {
  check_tensors(tensors, path.string());
  WrittenFile written;
  try {
    StagedFile file = stage(path, tensors, metadata, options, &written);
    file.commit();
  } catch (...) {
    rethrow_memory_errors();
  }
  sync_folder(path.parent_path());
  return written;
}

std::vector<std::string> write_sharded(const fs::path& folder, const NamedTensors& tensors,
                                       int64_t max_shard_bytes, const Metadata& metadata) {
  MS_CHECK(max_shard_bytes > 0, "{}: expected max_shard_bytes > 0, got {}; 5e9 is usual",
           folder.string(), max_shard_bytes);
  check_tensors(tensors, folder.string());
  create_folders(folder, Access::Shared);
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
    write_folder_sums(folder, {kIndexFileName});
  }
  return names;
}

}  // namespace moonshard::weights
