// Where moonshard is installed: programs in bin/, libraries in lib/, scripts in share/moonshard.
#pragma once

#include <filesystem>

namespace moonshard {

/// For hosts that link moonshard into a program of their own. Without a call the prefix is the
/// environment's MOONSHARD_PREFIX, or the folder above the bin/ or lib/ our code lies in.
void set_install_prefix(const std::filesystem::path& folder);
std::filesystem::path install_prefix();

}  // namespace moonshard
