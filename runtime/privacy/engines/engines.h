// Makers of the engines, one per file in this folder.
#pragma once

#include <memory>

#include "runtime/privacy/clip_engine.h"

namespace moonshard::privacy {

std::unique_ptr<ClipEngine> make_plain_engine();
std::unique_ptr<ClipEngine> make_materialize_engine(const ClipOptions& options);

}  // namespace moonshard::privacy
