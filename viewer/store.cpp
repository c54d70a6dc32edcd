#include "viewer/store.h"

#include <filesystem>

#include "runtime/input/open_file.h"
#include "runtime/records/csv.h"
#include "runtime/records/plot_spec.h"
#include "viewer/program_answer.h"
#include "viewer/tracing/memory_snapshot.h"
#include "viewer/tracing/trace_index.h"
#include "viewer/tracing/trace_path.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNumThreads = 2;
constexpr size_t kDetailBatch = 64;   // points per reading process
constexpr uint64_t kKeptCost = 4096;  // details count 1, whole files 256
constexpr uint64_t kFileCost = 256;

}  // namespace

struct Store::Entry {
  ReadRequest request;
  std::shared_ptr<const void> value;
  std::string error;
  bool queued = false, loading = false, cancelled = false;
  std::atomic<bool> stop{false};
  std::atomic<double> progress{0};
  uint64_t stamp = 0, last_asked = 0;

  uint64_t cost() const { return request.kind == ReadRequest::Kind::Details ? 1 : kFileCost; }
  uint64_t stamp_now() const {
    if (request.kind == ReadRequest::Kind::Details) {
      return stamp_of(fs::path(request.folder) / "points" / request.names.front() / "result.json") +
             stamp_of(fs::path(request.folder) / "points" / request.names.front());
    }
    if (request.kind == ReadRequest::Kind::Program) return 0;  // no file: never out of date
    uint64_t sum = 0;
    for (const std::string& name : request.names) sum += stamp_of(fs::path(request.folder) / name);
    return sum;
  }
};

Store::Store(std::function<void()> on_change) : on_change_(std::move(on_change)) {
  for (size_t i = 0; i < kNumThreads; ++i) {
    threads_.emplace_back([this](std::stop_token stop) { work(stop); });
  }
}

Store::~Store() {
  for (std::jthread& thread : threads_) thread.request_stop();
  const std::lock_guard lock(mutex_);
  for (auto& [key, entry] : entries_) entry->stop = true;
}

Loaded<void> Store::find_or_add(const ReadRequest& request) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Entry>& entry = entries_[encode(request)];
  if (!entry) {
    entry = std::make_shared<Entry>();
    entry->request = request;
    entry->queued = true;
    queue_.push_back(entry);
    wake_.notify_one();
  }
  entry->last_asked = ++clock_;
  return {entry->value, entry->error, entry->queued || entry->loading, entry->progress};
}

void Store::cancel(const ReadRequest& request) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(encode(request));
  if (found == entries_.end()) return;
  Entry& entry = *found->second;
  entry.stop = entry.cancelled = true;
  if (std::erase(queue_, found->second) > 0) {
    entry.queued = false;
    entry.error = "cancelled";
    ++revision_;
  }
}

void Store::retry(const ReadRequest& request) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(encode(request));
  if (found == entries_.end() || found->second->queued || found->second->loading) return;
  entries_.erase(found);
  ++revision_;
}

void Store::refresh() {
  const std::lock_guard lock(mutex_);
  for (auto& [key, entry] : entries_) {
    if (entry->queued || entry->loading || entry->cancelled) continue;
    const uint64_t now = entry->stamp_now();
    // What went away keeps what was read of it.
    if (now == 0 || now == entry->stamp) continue;
    entry->queued = true;
    queue_.push_back(entry);
    wake_.notify_one();
  }
}

bool Store::busy() const {
  const std::lock_guard lock(mutex_);
  return reading_ > 0 || !queue_.empty();
}

void Store::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return reading_ == 0 && queue_.empty(); });
}

// Takes what waits: details of one folder together, anything else alone.
void Store::work(std::stop_token stop) {
  while (true) {
    std::vector<std::shared_ptr<Entry>> batch;
    {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, stop, [this] { return !queue_.empty(); })) return;
      batch.push_back(queue_.front());
      queue_.erase(queue_.begin());
      const ReadRequest first = batch.front()->request;
      for (auto at = queue_.begin(); first.kind == ReadRequest::Kind::Details &&
                                     at != queue_.end() && batch.size() < kDetailBatch;) {
        const bool fits =
            (*at)->request.kind == first.kind && (*at)->request.folder == first.folder;
        if (fits) batch.push_back(*at);
        at = fits ? queue_.erase(at) : at + 1;
      }
      for (const auto& entry : batch) {
        entry->queued = false;
        entry->loading = true;
        entry->stamp = entry->stamp_now();  // before reading: later changes are seen as such
      }
      ++reading_;
    }
    batch.front()->request.kind == ReadRequest::Kind::Details ? read_detail_batch(std::move(batch))
                                                              : read(batch.front());
    {
      const std::lock_guard lock(mutex_);
      --reading_;
      drop_oldest();
      idle_.notify_all();
    }
    if (on_change_) on_change_();
  }
}

void Store::finish(Entry& entry, std::shared_ptr<const void> value, std::string error) {
  const std::lock_guard lock(mutex_);
  if (error.empty() || !entry.value) entry.value = std::move(value);
  entry.error = std::move(error);
  entry.loading = false;
  ++revision_;
}

void Store::read(const std::shared_ptr<Entry>& entry) {
  using Kind = ReadRequest::Kind;
  const auto progress = [&](double share) {
    entry->progress = share;
    if (on_change_) on_change_();
  };
  const auto read_as = [&]<class T>() {
    return std::make_shared<const T>(read_file<T>(entry->request, progress, entry->stop));
  };
  std::shared_ptr<const void> value;
  std::string error = error_of([&] {
    const Kind kind = entry->request.kind;
    if (kind == Kind::Snapshot) value = read_as.operator()<MemorySnapshot>();
    if (kind == Kind::Program)
      value = std::make_shared<const std::string>(ask_program(entry->request.names, entry->stop));
    if (kind == Kind::Path) value = read_as.operator()<TracePath>();
    if (kind == Kind::Log) value = read_as.operator()<std::string>();
    if (kind == Kind::Table) value = read_as.operator()<records::CsvTable>();
    if (kind == Kind::Plot) value = read_as.operator()<records::PlotSpec>();
    if (kind == Kind::Trace) {
      // The index is made here: for a million events it would be felt in a frame.
      const auto trace = read_as.operator()<Trace>();
      value = std::make_shared<const IndexedTrace>(IndexedTrace{trace, build_trace_index(*trace)});
    }
  });
  finish(*entry, std::move(value), std::move(error));
}

void Store::read_detail_batch(std::vector<std::shared_ptr<Entry>> batch) {
  std::vector<std::string> ids;
  for (const auto& entry : batch) ids.push_back(entry->request.names.front());
  const std::string error = error_of([&] {
    read_details(
        batch.front()->request.folder, ids, {}, batch.front()->stop, [&](DetailAnswer answer) {
          finish(*batch[answer.index], std::make_shared<const PointDetail>(std::move(answer.value)),
                 std::move(answer.error));
        });
  });
  for (const auto& entry : batch) {
    if (entry->loading) finish(*entry, nullptr, error.empty() ? "was not read" : error);
  }
}

// Keeps memory bounded when a long session looks at many traces.
void Store::drop_oldest() {
  uint64_t cost = 0;
  for (const auto& [key, entry] : entries_) cost += entry->cost();
  while (cost > kKeptCost) {
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (at->second->queued || at->second->loading) continue;
      if (oldest == entries_.end() || at->second->last_asked < oldest->second->last_asked) {
        oldest = at;
      }
    }
    if (oldest == entries_.end()) return;
    cost -= oldest->second->cost();
    entries_.erase(oldest);
  }
}

}  // namespace moonshard::viewer
