// Which build this is.
#pragma once

#include <string>

namespace moonshard {

/// "abc1234", with a + where the sources that were built differ from it.
std::string source_commit();
/// "0.1.0 (commit abc1234), LibTorch 2.11.0".
std::string library_version();

}  // namespace moonshard
