// Reads an untrusted run folder into the viewer's tables. Gives the same results as
// runtime/records/reader, but keeps only what the table needs and reads points in two threads.
#pragma once

#include <filesystem>

#include "viewer/data/run_data.h"
#include "viewer/input/control.h"

namespace moonshard::viewer {

/// Throws IoError only when it is not a run folder at all (no readable sweep.json); a damaged point
/// becomes one with status "unreadable" and the reason. Links out of the folder are not followed.
RunData read_run(const std::filesystem::path& folder, const ReadControl& control = {});

}  // namespace moonshard::viewer
