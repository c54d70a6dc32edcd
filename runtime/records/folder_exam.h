// What an examination of a folder has found so far, and how it looks at a file: shared by the parts
// of `moonshard doctor DIR`.
#pragma once

#include <set>
#include <string>

#include "runtime/records/folder_check.h"
#include "runtime/records/reader.h"
#include "runtime/records/sweep_file.h"

namespace moonshard::records {

inline constexpr size_t kMostTableBytes = 64u << 20;  // of a table or a page
inline constexpr size_t kMostTableRows = 100'000;

class FolderExam {
 public:
  FolderExam(const std::filesystem::path& folder, const TypedOptions& typed_options)
      : path(folder), typed(typed_options) {
    found.path = folder;
  }

  void add(const std::filesystem::path& file, const std::string& what);
  void note(const std::string& text) { found.notes.push_back(text); }
  bool exists(const std::filesystem::path& file) const;
  /// Text and value of a JSON file; null where it has a defect.
  Json read(const std::filesystem::path& file, std::string* text = nullptr);

  /// Runs `look`; what it throws is a defect of the file.
  template <class Look>
  bool guarded(const std::filesystem::path& file, const Look& look) {
    ++found.files;
    if (file != path && !lies_inside(path, file)) {
      add(file, "leads out of the folder; it is not read");
      return false;
    }
    try {
      look();
      return true;
    } catch (const std::exception& error) {
      add(file, error.what());
      return false;
    }
  }

  std::filesystem::path path;
  const TypedOptions& typed;
  FolderCheck found;
  std::set<std::string> copies;  ///< names of the profiling suites' files that belong to a point
  size_t without_digest = 0;     ///< records that older versions wrote
};

/// The folder of one point: record, tables, status, the profiling suites' copy.
void examine_point(FolderExam& exam, const std::vector<std::string>& axes,
                   const PlannedPoint& planned);

/// Keys that every result file of the profiling suites has.
void check_suite_result(FolderExam& exam, const std::filesystem::path& file, const Json& value);

}  // namespace moonshard::records
