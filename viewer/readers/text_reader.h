// Logs and tables of run folders.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "runtime/records/csv.h"

namespace moonshard::viewer {

/// The end of a log; when the beginning was cut, the first line says so. Throws IoError for what is
/// no plain file or leads out of its folder.
std::string read_log(const std::filesystem::path& path, size_t max_bytes = 16u << 20);

/// A table. Throws IoError for more than 64 MiB, a million rows or eight million cells.
records::CsvTable read_table(const std::filesystem::path& path);

}  // namespace moonshard::viewer
