// Which build this is.
#pragma once

#include <string>

namespace moonshard {

/// "0.1.0 (commit abc1234), LibTorch 2.11.0".
std::string library_version();

}  // namespace moonshard
