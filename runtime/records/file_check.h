// Whether single files of a run folder are whole: by their first and last bytes, which is enough to
// tell a whole one from one that was cut off, or is something else. Each throws IoError.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/records/csv.h"

namespace moonshard::records {

void expect_gzip(const std::filesystem::path& path);
void expect_pickle(const std::filesystem::path& path);
void expect_png(const std::filesystem::path& path);
/// An HTML page with its end.
void expect_page(const std::filesystem::path& path);
void expect_some_text(const std::filesystem::path& path);

/// The first cell in which a table that was found differs from the one that records make; "" for
/// equal ones. Columns that only `made` has are those of a newer version.
std::string first_difference(const CsvTable& found, const CsvTable& made);

}  // namespace moonshard::records
