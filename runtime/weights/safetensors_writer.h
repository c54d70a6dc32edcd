// Writers of safetensors files. Files are written atomically; a set of shards never mixes old
// and new ones.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/weights/safetensors_header.h"

namespace moonshard::weights {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The names under which Hugging Face folders keep weights.
inline constexpr const char* kSingleFileName = "model.safetensors";
inline constexpr const char* kIndexFileName = "model.safetensors.index.json";

/// Other libraries take only files that name their framework.
inline const Metadata kPortableMetadata = {{"format", "pt"}};

/// Writes tensors in the order given, from any device and with any strides, in pieces: host memory
/// stays bounded. Throws UsageError for names and dtypes no reader takes, IoError when writing
/// fails; an older file then stays as it was.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const Metadata& metadata = kPortableMetadata);

/// Fills a folder: model.safetensors when all fits into `max_shard_bytes`, else
/// model-00001-of-0000N.safetensors … and model.safetensors.index.json. Replaces the weights that
/// were there under these names. A tensor larger than a shard gets its own shard. Returns the
/// names of the files of weights.
std::vector<std::string> write_sharded(const std::filesystem::path& folder,
                                       const NamedTensors& tensors, int64_t max_shard_bytes,
                                       const Metadata& metadata = kPortableMetadata);

}  // namespace moonshard::weights
