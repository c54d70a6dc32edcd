// Readers of untrusted run folders, for the reading process. Only files that lie in the folder are
// opened and listed; links out of it are not followed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "runtime/input/control.h"
#include "runtime/input/json_stream.h"
#include "runtime/input/open_file.h"
#include "runtime/records/csv.h"
#include "viewer/data/run_data.h"

namespace moonshard::viewer {

/// A run folder as the viewer's tables: the same results as runtime/records/reader, but only what
/// the table needs, and points read in two threads. Throws IoError only when it is not a run folder
/// at all (no readable sweep.json); a damaged point becomes one with status "unreadable" and the
/// reason.
RunData read_run(const std::filesystem::path& folder, const ReadControl& control = {});
/// The same of a folder that is open.
RunData read_run_in(const InsideFolder& inside, const ReadControl& control = {});

/// What the panels of one point show, from its result.json and the files beside it. Throws IoError
/// when the result cannot be read; a point without one has empty parts.
PointDetail read_point_detail(const std::filesystem::path& run_folder, const std::string& id,
                              const ReadControl& control = {});

/// The part of it that stands in result.json.
PointDetail read_result_detail(JsonStream& stream);

/// The end of a log; when the beginning was cut, the first line says so. Throws IoError for what is
/// no plain file or leads out of its folder.
std::string read_log(const std::filesystem::path& path, size_t max_bytes = 16u << 20);
std::string read_log(OpenFile file, size_t max_bytes);

/// A table. Throws IoError for more than 64 MiB, a million rows or eight million cells.
records::CsvTable read_table(const std::filesystem::path& path);
records::CsvTable read_table(OpenFile file);

}  // namespace moonshard::viewer
