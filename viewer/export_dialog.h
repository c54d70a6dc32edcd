// The dialog that asks where and how large a picture shall be saved.
#pragma once

#include <filesystem>
#include <future>
#include <string>

#include "viewer/export_job.h"
#include "viewer/panels/panel.h"

namespace moonshard::viewer {

class ExportDialog {
 public:
  void open(ExportRequest request);
  /// Draws it while it is open; returns what to say in the status bar, empty for nothing.
  std::string draw(const UiStyle& style);
  bool busy() const { return job_.valid(); }

 private:
  void save(const char* extension);

  ExportOptions options_;
  ExportRequest request_;
  std::future<ExportResult> job_;
  std::string error_;
  std::filesystem::path replaced_;  // asked about already; pressed again it is replaced
  bool asked_ = false, dark_ = false;
  char file_[1024] = "";
};

}  // namespace moonshard::viewer
