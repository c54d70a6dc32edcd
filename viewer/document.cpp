#include "viewer/document.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "runtime/input/open_file.h"
#include "viewer/readers/requests.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

// A folder of which nothing is read: its name is that of the folder.
std::shared_ptr<RunData> unread_run(const std::string& path) {
  auto data = std::make_shared<RunData>();
  data->path = path;
  data->name = fs::path(path).filename().string();
  return data;
}

constexpr auto kPollInterval = std::chrono::seconds(1);
// Snapshots that are published while many folders are read: often enough to look alive.
constexpr auto kPublishInterval = std::chrono::milliseconds(200);

// FNV-1a step over the bytes of one number.
uint64_t mix_in(uint64_t hash, uint64_t value) {
  for (int byte = 0; byte < 8; ++byte) {
    hash = (hash ^ ((value >> (8 * byte)) & 0xFF)) * 1099511628211ull;
  }
  return hash;
}

// One spelling per folder: without a slash at the end and without dots in between.
std::string spelled(const fs::path& folder) {
  fs::path path = folder.lexically_normal();
  if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
  return path.string();
}

}  // namespace

uint64_t folder_signature(const fs::path& folder) {
  // Files of a run folder appear by rename, which stamps the folder they lie in. So the folders'
  // times show every new or rewritten file, and single files need no check.
  uint64_t hash = mix_in(1469598103934665603ull, stamp_of(folder));
  hash = mix_in(hash, stamp_of(folder / "visualizations"));
  std::error_code error;
  fs::directory_iterator entry(folder / "points", error), end;
  uint64_t points = 0;
  while (!error && entry != end) {
    points += mix_in(fs::hash_value(entry->path()), stamp_of(entry->path()));  // in any order
    entry.increment(error);
  }
  return std::max<uint64_t>(mix_in(hash, points), 1);
}

Document::Document(const std::vector<fs::path>& folders, std::function<void()> on_change)
    : on_change_(std::move(on_change)), snapshot_(std::make_shared<Snapshot>()) {
  open(folders);
}

Document::~Document() {
  stop_reading_ = true;
  if (loader_.joinable()) loader_.request_stop();
}

std::string Document::open(const std::vector<fs::path>& folders) {
  const std::lock_guard lock(mutex_);
  std::string first;
  for (const fs::path& folder : folders) {
    const std::string path = spelled(folder), whole = spelled(whole_path(path));
    if (path.empty()) continue;
    const auto known = std::ranges::find(folders_, whole, &Folder::whole);
    if (first.empty()) first = known == folders_.end() ? path : known->path;
    if (known != folders_.end()) continue;
    const auto data = unread_run(path);
    folders_.push_back({path, 0, {data, ""}, whole, data->name});
  }
  look_asked_ = true;
  if (loader_.joinable()) loading_ = true;
  wake_.notify_all();
  return first;
}

void Document::close(const std::string& folder) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(folders_, [&](const Folder& other) { return other.path == folder; });
  }
  publish();
}

std::vector<std::string> Document::folders() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> paths;
  for (const Folder& folder : folders_) paths.push_back(folder.path);
  return paths;
}

void Document::load_now() {
  read_changed(true);
  loading_ = false;
}

void Document::follow() {
  loading_ = !folders().empty();
  loader_ = std::jthread([this](std::stop_token stop) { loader_loop(stop); });
}

void Document::reload() {
  const std::lock_guard lock(mutex_);
  reload_asked_ = loading_ = true;
  wake_.notify_all();
}

void Document::cancel() {
  if (loading_) stop_reading_ = true;
}

std::shared_ptr<const Snapshot> Document::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

// Whether a person named the folder; "run_20261115_120000_sample" is what a sweep calls its own.
bool has_own_name(const std::string& folder) {
  constexpr std::string_view kTime = "run_dddddddd_dddddd";
  if (folder.size() < kTime.size()) return true;
  for (size_t i = 0; i < kTime.size(); ++i) {
    const bool is_digit = folder[i] >= '0' && folder[i] <= '9';
    if (kTime[i] == 'd' && i > 3 ? !is_digit : folder[i] != kTime[i]) return true;
  }
  return false;
}

// Two runs of one sweep have the same name; the names of the folders distinguish them. Then all
// runs have those, where they are names and not only times: no list of both kinds.
void Document::name_runs() {
  std::map<std::string, size_t> by_name, by_folder;
  const auto folder_name = [](const Folder& folder) {
    return fs::path(folder.path).filename().string();
  };
  for (const Folder& folder : folders_) {
    ++by_name[folder.name];
    ++by_folder[folder_name(folder)];
  }
  const bool repeats =
      std::ranges::any_of(by_name, [](const auto& entry) { return entry.second > 1; });
  const bool by_folders = repeats && std::ranges::all_of(folders_, [&](const Folder& folder) {
                            return has_own_name(folder_name(folder));
                          });
  for (Folder& folder : folders_) {
    std::string name = folder.name;
    const bool asks_folder = by_folders || by_name[name] > 1;
    if (asks_folder) name = folder_name(folder);
    if (asks_folder && by_folder[name] > 1) name = folder.path;
    if (folder.run.data->name == name) continue;
    auto renamed = std::make_shared<RunData>(*folder.run.data);
    renamed->name = name;
    folder.run.data = std::move(renamed);
  }
}

void Document::publish() {
  {
    const std::lock_guard lock(mutex_);
    name_runs();
    auto next = std::make_shared<Snapshot>();
    next->generation = snapshot_->generation + 1;
    for (const Folder& folder : folders_) next->runs.push_back(folder.run);
    snapshot_ = std::move(next);
  }
  if (on_change_) on_change_();
}

// Reads the folders that changed, or all. True when there were any.
bool Document::read_changed(bool all) {
  std::vector<std::string> paths;
  std::vector<uint64_t> signatures;
  for (const std::string& path : folders()) {
    // Taken before reading: what is written meanwhile shows up at the next look.
    const uint64_t now = folder_signature(path);
    const std::lock_guard lock(mutex_);
    const auto folder = std::ranges::find(folders_, path, &Folder::path);
    if (folder == folders_.end() || (!all && folder->seen == now)) continue;
    paths.push_back(path);
    signatures.push_back(now);
  }
  if (paths.empty()) return false;
  loading_ = true;
  progress_ = 0;
  const auto take_over = [&](size_t index, LoadedRun run) {
    const std::lock_guard lock(mutex_);
    for (Folder& folder : folders_) {
      if (folder.path != paths[index]) continue;
      folder.seen = signatures[index];
      // A folder that went away keeps what was read of it, with the reason.
      if (run.error.empty() || folder.run.data->points.empty()) {
        folder.run.data = run.data;
        folder.name = run.data->name;
      }
      folder.run.error = run.error;
    }
  };
  std::vector<bool> done(paths.size(), false);
  auto last_publish = std::chrono::steady_clock::now();
  std::string error = error_of([&] {
    const auto on_progress = [&](double share) {
      progress_ = share;
      if (on_change_) on_change_();
    };
    read_runs(paths, on_progress, stop_reading_, [&](RunAnswer answer) {
      done[answer.index] = true;
      auto run = unread_run(paths[answer.index]);
      if (answer.error.empty()) {
        answer.value.path = run->path;
        *run = std::move(answer.value);
      }
      take_over(answer.index, {run, std::move(answer.error)});
      progress_ = static_cast<double>(answer.index + 1) / static_cast<double>(paths.size());
      const auto now = std::chrono::steady_clock::now();
      if (paths.size() < 2 || now - last_publish < kPublishInterval) return;
      last_publish = now;
      publish();
    });
  });
  if (error == "cancelled") error = "reading was cancelled; F5 reads it again";
  for (size_t i = 0; i < paths.size(); ++i) {
    if (done[i]) continue;
    take_over(i, {unread_run(paths[i]), error.empty() ? "was not read" : error});
  }
  stop_reading_ = false;
  publish();
  return true;
}

void Document::loader_loop(std::stop_token stop) {
  bool all = true;
  while (!stop.stop_requested()) {
    const bool read = read_changed(all);
    {
      const std::lock_guard lock(mutex_);
      loading_ = reload_asked_ || look_asked_;
    }
    if (read && on_change_) on_change_();  // the progress bar goes
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, kPollInterval, [this] { return reload_asked_ || look_asked_; });
    all = std::exchange(reload_asked_, false);
    look_asked_ = false;
  }
}

}  // namespace moonshard::viewer
