// What panels request while they draw: details, traces, snapshots, logs, tables and plots of the
// open folders. A request never blocks: the answer says whether it is there, being read, or cannot
// be read; two threads read in the background. What changed on disk is read anew while the old
// stays on the screen.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "viewer/readers/requests.h"

namespace moonshard::viewer {

/// The answer of one frame.
template <class T>
struct Loaded {
  std::shared_ptr<const T> value;  ///< may be there while a newer one is being read
  std::string error;
  bool loading = false;
  double progress = 0;  ///< 0 to 1, while loading
};

class Store {
 public:
  /// on_change is called from a reading thread whenever something was read.
  explicit Store(std::function<void()> on_change = {});
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  Loaded<PointDetail> detail(const std::string& folder, const std::string& id) {
    return file<PointDetail>({ReadRequest::Kind::Details, folder, {id}});
  }
  /// What the program says (std::string), PointDetail, IndexedTrace, TracePath, MemorySnapshot,
  /// std::string, records::CsvTable or records::PlotSpec, as kind says.
  template <class T>
  Loaded<T> file(const ReadRequest& request) {
    Loaded<void> found = find_or_add(request);
    return {std::static_pointer_cast<const T>(found.value), std::move(found.error), found.loading,
            found.progress};
  }

  /// Stops reading one thing; later requests report it as cancelled, until retry.
  void cancel(const ReadRequest& request);
  void retry(const ReadRequest& request);

  /// Looks which files changed since they were read and reads those again.
  void refresh();
  /// Grows whenever an answer changes; charts are made anew then.
  uint64_t revision() const { return revision_; }
  bool busy() const;
  /// Waits until nothing is being read. For screenshots and tests.
  void wait_idle();

 private:
  struct Entry;

  Loaded<void> find_or_add(const ReadRequest& request);
  void work(std::stop_token stop);
  void read(const std::shared_ptr<Entry>& entry);
  void read_detail_batch(std::vector<std::shared_ptr<Entry>> batch);
  void finish(Entry& entry, std::shared_ptr<const void> value, std::string error);
  void drop_oldest();

  std::function<void()> on_change_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_, idle_;
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_;  // by encoded request
  std::vector<std::shared_ptr<Entry>> queue_;
  size_t reading_ = 0;
  uint64_t clock_ = 0;  // for "least recently asked"
  std::atomic<uint64_t> revision_{0};
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace moonshard::viewer
