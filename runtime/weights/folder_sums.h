// Checksums of the small files of a folder of weights that moonshard writes (config.json, the index
// of shards): lines of CRC-32C, size and name in `checksums.txt`, the last of them for the file
// itself. Files of tensors have theirs inside (block_sums.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace moonshard::weights {

inline constexpr const char* kFolderSumsName = "checksums.txt";

void write_folder_sums(const std::filesystem::path& folder, const std::vector<std::string>& names);

/// Throws IoError that names the file if it is not what was written, or is missing. Nothing for
/// files that are not listed, and in folders without such a list: others' have none.
void check_folder_sum(const std::filesystem::path& folder, const std::string& name);

/// Names of all files that are listed; empty without a list.
std::vector<std::string> summed_files(const std::filesystem::path& folder);

}  // namespace moonshard::weights
