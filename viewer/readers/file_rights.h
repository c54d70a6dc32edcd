// What a reading process may touch. Linux's Landlock keeps it to the opened folders, for reading
// only, whatever links lie in them; where the kernel has none, the readers' own checks remain.
#pragma once

#include <string>
#include <vector>

namespace moonshard::viewer {

/// Programs started by this process and its children gain no privileges (no_new_privs).
void give_up_privileges();

/// From here on this process may only read, and only below these folders (and what is open), where
/// the kernel enforces it.
void restrict_to_folders(const std::vector<std::string>& folders);

}  // namespace moonshard::viewer
