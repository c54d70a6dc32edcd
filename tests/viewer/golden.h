// Pictures against stored ones, with a tolerance for other drivers. MOONSHARD_UPDATE_GOLDEN=1
// stores them anew; look at them before committing.
#pragma once

#include <filesystem>
#include <string>

#include "viewer/backend.h"

namespace moonshard::viewer {

/// Share of 6 x 6 blocks whose mean colour differs by more than 20 of 255 levels: another driver's
/// smoothing stays below a block's tolerance, a missing bar, word or line does not.
double different_share(const Image& a, const Image& b);

/// Fails when the picture differs from tests/golden/NAME.png in 1 % of its blocks or more, or in
/// size; the picture as it is then lies in the temporary folder.
void expect_as_stored(const Image& image, const std::string& name);

}  // namespace moonshard::viewer
