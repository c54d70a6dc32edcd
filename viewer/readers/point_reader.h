// Reads what the panels of one point show, from its result.json and the files beside it.
#pragma once

#include <filesystem>
#include <string>

#include "viewer/data/point_detail.h"
#include "viewer/input/control.h"
#include "viewer/input/json_stream.h"

namespace moonshard::viewer {

/// Throws IoError when the result cannot be read; a point without one has empty parts. Only files
/// that lie in the run folder are opened and listed.
PointDetail read_point_detail(const std::filesystem::path& run_folder, const std::string& id,
                              const ReadControl& control = {});

/// The part of it that stands in result.json.
PointDetail read_result_detail(JsonStream& stream);

}  // namespace moonshard::viewer
