// Files that are either whole or absent. A write goes to a temporary file beside the target, is
// synced, renamed, and the folder is synced: a kill, a full disk or a power cut leaves the old file
// intact.
#pragma once

#include <filesystem>
#include <string_view>

namespace moonshard {

/// Writes bytes to path atomically and durably. Throws IoError; the old file then stands as it was.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

/// Removes temporaries that dead writers left in a folder (not in its sub-folders). Returns how
/// many.
int sweep_stale_temporaries(const std::filesystem::path& folder);

/// True for the names write_file_atomically uses for its temporaries; readers pass over them.
bool is_temporary_name(std::string_view file_name);

}  // namespace moonshard
