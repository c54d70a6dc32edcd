// The folder chooser: a path to type, the folders beside it to click, and which of them are run
// folders. Own code instead of the desktop's dialog, so that it works over any display and in
// tests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "viewer/context.h"

namespace moonshard::viewer {

/// The run folders that a path stands for: itself, or those directly below it (a results folder).
/// Throws IoError when there are none.
std::vector<std::filesystem::path> find_run_folders(const std::filesystem::path& path);

/// What a list of paths stands for: run folders, and memory snapshots that lie anywhere.
struct OpenablePaths {
  std::vector<std::filesystem::path> runs;
  std::vector<std::filesystem::path> snapshots;  ///< *.pickle, *.pkl
};
/// Files and folders that are neither are passed over while something else can be opened:
/// "results/*" may hold a README. Throws IoError when nothing is left, and for a path that is not
/// there.
OpenablePaths find_openable(const std::vector<std::filesystem::path>& paths);

class FolderDialog {
 public:
  void open() { asked_ = true; }
  /// Draws it while it is open; returns the folders that were chosen.
  std::vector<std::filesystem::path> draw(const UiStyle& style,
                                          const std::vector<std::string>& recent);

 private:
  struct Entry {
    std::string name;
    bool run_folder = false;
  };
  void list();

  bool asked_ = false;
  char path_[4096] = "";
  std::string listed_;  // path whose folders are in entries_
  std::vector<Entry> entries_;
  std::string error_;
};

}  // namespace moonshard::viewer
