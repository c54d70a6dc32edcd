// The run folders that are open. A loader thread reads them into snapshots that never change;
// panels see only the latest snapshot. Folders may grow while they are shown: the thread looks for
// new points about once per second.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/records/plot_spec.h"
#include "runtime/records/reader.h"

namespace moonshard::viewer {

/// One folder as it was read; error is set, and run empty, when it could not be.
struct LoadedRun {
  records::RunFolder run;
  std::string error;
};

/// Everything the panels show. Immutable once made.
struct Snapshot {
  std::vector<LoadedRun> runs;
  uint64_t generation = 0;  ///< grows with every reading
};

/// Reads all folders now. A folder that cannot be read keeps its place, with the reason.
Snapshot load_snapshot(const std::vector<std::filesystem::path>& folders, uint64_t generation);

/// A number that changes when a point of the folder starts, ends or is rewritten, or a plot
/// appears. Costs one stat per point and reads no file.
uint64_t folder_signature(const std::filesystem::path& folder);

/// A plot spec listed by a run folder. Throws IoError, also when the file leads out of the folder.
records::PlotSpec load_run_plot(const records::RunFolder& run, const std::string& file_name);

class Document {
 public:
  /// Opens folders without reading them yet.
  explicit Document(std::vector<std::filesystem::path> folders);
  ~Document();
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  /// Reads everything in the calling thread. For screenshots and tests.
  void load_now();
  /// Starts the loader thread; on_change is called from it after each new snapshot.
  void follow(std::function<void()> on_change);
  /// Asks the loader to read again, whether or not anything changed.
  void reload();

  std::shared_ptr<const Snapshot> snapshot() const;
  bool loading() const;
  const std::vector<std::filesystem::path>& folders() const { return folders_; }

 private:
  void loader_loop(std::stop_token stop);
  uint64_t signature() const;
  void publish(Snapshot snapshot);

  const std::vector<std::filesystem::path> folders_;
  std::function<void()> on_change_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::shared_ptr<const Snapshot> snapshot_;  // guarded by mutex_, as the two below
  bool reload_asked_ = false;
  bool loading_ = false;
  std::jthread loader_;  // last: it ends before what it uses
};

}  // namespace moonshard::viewer
