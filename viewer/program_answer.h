// Asks the program beside the viewer: predictions need LibTorch, which the viewer has not.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace moonshard::viewer {

/// What `moonshard ARGUMENTS` prints. Throws IoError with its message where it fails, and where it
/// is not there; Cancelled when stop is set. Exit code 3 (nothing fits) is an answer, too.
std::string ask_program(const std::vector<std::string>& arguments, const std::atomic<bool>& stop);

}  // namespace moonshard::viewer
