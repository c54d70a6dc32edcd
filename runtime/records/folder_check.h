// Checks the files of a run folder, whoever wrote them: `moonshard doctor DIR`. Every file is read
// by its own rules; records are compared with their schema, ids with the options they stand for,
// tables with the records they were made from.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/json.h"

namespace moonshard::records {

struct Defect {
  std::string file;  ///< within the folder; the folder's own name for what belongs to no file
  std::string what;  ///< what was expected, what is there
};

struct FolderCheck {
  std::filesystem::path path;
  size_t files = 0;   ///< that were looked at
  size_t points = 0;  ///< that have a record
  std::vector<Defect> defects;
  std::vector<std::string> notes;  ///< what is unusual and no defect
};

/// Options with their values in the types of their schema, which ids are made of: JSON that went
/// through a script has 1 for 1.0. Nothing for options that the schema does not have.
using TypedOptions = std::function<std::optional<Json>(const Json& options)>;

/// A run folder, a folder of the profiling suites' result files, or one JSON file. Never throws for
/// what lies in it; IoError when there is nothing at that path, or no file that is known.
FolderCheck check_folder(const std::filesystem::path& path, const TypedOptions& typed);

/// What is wrong with a record by its schema: keys that it does not know, values of another kind,
/// figures that contradict each other. Empty when all is well.
std::vector<std::string> check_record(const Json& record);

Json to_json(const FolderCheck& check);

}  // namespace moonshard::records
