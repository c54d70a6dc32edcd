// Reads what moonshard keeps of training from end to end, to find damage before it is needed:
// `moonshard doctor DIR` on a checkpoint, a folder of them, or weights.
#pragma once

#include <filesystem>
#include <optional>

#include "runtime/records/folder_check.h"

namespace moonshard::checkpoint {

/// Every byte that has a checksum, and that checkpoints which name each other belong together.
/// Nothing if the path is none of these. Never throws for what lies there.
std::optional<records::FolderCheck> examine(const std::filesystem::path& path);

}  // namespace moonshard::checkpoint
