// The run folders that are open. A loader thread has them read (in a separate process) into
// snapshots that never change; panels see only the latest snapshot. Folders may grow while they are
// shown: the thread looks for new points about once per second and reads what changed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "viewer/data/run_data.h"

namespace moonshard::viewer {

/// One folder as it was read. data is always there; error says why it is empty or old.
struct LoadedRun {
  std::shared_ptr<const RunData> data = std::make_shared<RunData>();
  std::string error;
};

/// Everything the panels show. Immutable once made.
struct Snapshot {
  std::vector<LoadedRun> runs;
  uint64_t generation = 0;  ///< grows with every reading
};

/// A number that changes when a point of the folder starts, ends or is rewritten, or a plot
/// appears. Costs one stat per point and reads no file.
uint64_t folder_signature(const std::filesystem::path& folder);

class Document {
 public:
  /// Opens folders without reading them yet. on_change is called from the loader thread after each
  /// new snapshot and for progress.
  explicit Document(const std::vector<std::filesystem::path>& folders,
                    std::function<void()> on_change = {});
  ~Document();
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  /// Reads everything in the calling thread. For screenshots and tests, instead of follow.
  void load_now();
  /// Starts the loader thread.
  void follow();
  /// Makes the loader read again, whether or not anything changed.
  void reload();
  /// Stops the reading under way; what was read stays.
  void cancel();
  /// Adds folders at the end (those that are open already stay where they are); returns the path
  /// by which the first of them is known here.
  std::string open(const std::vector<std::filesystem::path>& folders);
  /// Takes one out.
  void close(const std::string& folder);

  std::shared_ptr<const Snapshot> snapshot() const;
  bool loading() const { return loading_; }
  double progress() const { return progress_; }  ///< 0 to 1, while loading
  std::vector<std::string> folders() const;

 private:
  struct Folder {
    std::string path;
    uint64_t seen = 0;  ///< signature when it was last read; 0: never
    LoadedRun run;
    std::string whole;  ///< the path from the root: one folder is open once
    std::string name;   ///< from sweep.json; shown unless another open folder has the same
  };

  void loader_loop(std::stop_token stop);
  bool read_changed(bool all);
  void name_runs();
  void publish();

  std::function<void()> on_change_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<Folder> folders_;  // guarded by mutex_, as all below
  std::shared_ptr<const Snapshot> snapshot_;
  bool reload_asked_ = false, look_asked_ = false;
  std::atomic<bool> loading_{false}, stop_reading_{false};
  std::atomic<double> progress_{0};
  std::jthread loader_;  // last: it ends before what it uses
};

}  // namespace moonshard::viewer
