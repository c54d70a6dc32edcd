#include "viewer/document.h"

#include <algorithm>
#include <chrono>

#include "viewer/render/render_file.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

constexpr auto kPollInterval = std::chrono::seconds(1);

// FNV-1a step over the bytes of one number.
uint64_t mix_in(uint64_t hash, uint64_t value) {
  for (int byte = 0; byte < 8; ++byte) {
    hash = (hash ^ ((value >> (8 * byte)) & 0xFF)) * 1099511628211ull;
  }
  return hash;
}

uint64_t stamp(const fs::path& path) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  return error ? 0 : static_cast<uint64_t>(time.time_since_epoch().count());
}

}  // namespace

Snapshot load_snapshot(const std::vector<fs::path>& folders, uint64_t generation) {
  Snapshot snapshot;
  snapshot.generation = generation;
  for (const fs::path& folder : folders) {
    LoadedRun loaded;
    try {
      loaded.run = records::load_run_folder(folder);
    } catch (const std::exception& problem) {
      loaded.run.path = folder;
      loaded.run.name = folder.filename().string();
      loaded.error = problem.what();
    }
    snapshot.runs.push_back(std::move(loaded));
  }
  return snapshot;
}

uint64_t folder_signature(const fs::path& folder) {
  // Files of a run folder appear by rename, which stamps the folder they lie in. So the folders'
  // times tell of every new or rewritten file, and single files need no look.
  uint64_t hash = mix_in(1469598103934665603ull, stamp(folder));
  hash = mix_in(hash, stamp(folder / "visualizations"));
  std::error_code error;
  fs::directory_iterator entry(folder / "points", error), end;
  uint64_t points = 0;
  while (!error && entry != end) {
    points += mix_in(fs::hash_value(entry->path()), stamp(entry->path()));  // in any order
    entry.increment(error);
  }
  return mix_in(hash, points);
}

records::PlotSpec load_run_plot(const records::RunFolder& run, const std::string& file_name) {
  const fs::path path = run.path / "visualizations" / file_name;
  // The listing was checked, but the folder may have changed since.
  std::error_code error;
  if (fs::exists(path, error) && !records::lies_inside(run.path, path)) {
    throw IoError(path.string() + ": leads out of the run folder; it is not opened");
  }
  return load_plot_spec(path);
}

Document::Document(std::vector<fs::path> folders)
    : folders_(std::move(folders)), snapshot_(std::make_shared<Snapshot>()) {}

Document::~Document() {
  if (loader_.joinable()) loader_.request_stop();
}

void Document::load_now() {
  publish(load_snapshot(folders_, snapshot()->generation + 1));
}

void Document::follow(std::function<void()> on_change) {
  on_change_ = std::move(on_change);
  loading_ = reload_asked_ = true;
  loader_ = std::jthread([this](std::stop_token stop) { loader_loop(stop); });
}

void Document::reload() {
  const std::lock_guard lock(mutex_);
  reload_asked_ = loading_ = true;
  wake_.notify_all();
}

std::shared_ptr<const Snapshot> Document::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

bool Document::loading() const {
  const std::lock_guard lock(mutex_);
  return loading_;
}

uint64_t Document::signature() const {
  uint64_t hash = 0;
  for (const fs::path& folder : folders_) hash = mix_in(hash, folder_signature(folder));
  return hash;
}

void Document::publish(Snapshot snapshot) {
  auto shared = std::make_shared<const Snapshot>(std::move(snapshot));
  const std::lock_guard lock(mutex_);
  snapshot_ = std::move(shared);
  loading_ = reload_asked_;
}

void Document::loader_loop(std::stop_token stop) {
  uint64_t seen = 0;
  while (!stop.stop_requested()) {
    // Taken before reading: what is written meanwhile shows up at the next look.
    const uint64_t now = signature();
    bool asked = false;
    {
      const std::lock_guard lock(mutex_);
      std::swap(asked, reload_asked_);
      loading_ = asked || now != seen;
    }
    if (asked || now != seen) {
      publish(load_snapshot(folders_, snapshot()->generation + 1));
      seen = now;
      on_change_();
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, kPollInterval, [this] { return reload_asked_; });
  }
}

}  // namespace moonshard::viewer
