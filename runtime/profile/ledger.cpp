#include "runtime/profile/ledger.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "runtime/base/check.h"
#include "runtime/profile/memory.h"
#include "runtime/profile/out_of_memory.h"

namespace moonshard::profile {

const char* owner_name(Owner owner) {
  static constexpr const char* kNames[] = {"parameters",       "gathered_parameters",
                                           "cast_parameters",  "gradients",
                                           "optimizer_state",  "activations",
                                           "output_gradients", "engine_kept",
                                           "norm_samples",     "temporaries_ggt",
                                           "temporaries_aat",  "engine_temporaries",
                                           "communication",    "data",
                                           "step_temporaries"};
  static_assert(std::size(kNames) == kOwners);
  return kNames[static_cast<size_t>(owner)];
}

namespace {

using Clock = std::chrono::steady_clock;

// Blocks of the CUDA allocator are multiples of this; a claimed tensor's block is at least that.
constexpr int64_t kGpuBlock = 512;
constexpr size_t kMostSamples = 1u << 17;

struct Block {
  int64_t bytes;
  Owner owner;
};

// One for the process: allocations come from any thread, also while a ledger begins and ends.
struct Ledger {
  std::mutex mutex;
  c10::Device device = c10::kCPU;
  std::unordered_map<const void*, Block> blocks;
  Owner owner = Owner::Activations;  ///< of what is allocated now
  OwnerBytes owners{};
  int64_t unclaimed = 0;  ///< held since before the ledger, owner unknown
  int64_t total = 0, peak = 0;
  OwnerBytes at_peak{};
  int64_t unclaimed_at_peak = 0;
  std::string phase, peak_phase;
  std::vector<LedgerPhase> phases;
  std::vector<LedgerSample> samples;
  size_t stride = 1, changes = 0;
  Clock::time_point start;

  void add(const void* block, int64_t bytes, Owner to) {
    blocks[block] = {bytes, to};
    owners[static_cast<size_t>(to)] += bytes;
  }

  void allocated(const void* block, int64_t bytes) {
    const auto stale = blocks.find(block);  // freed where nobody saw it
    if (stale != blocks.end()) forget(stale, stale->second.bytes);
    add(block, bytes, owner);
    total += bytes;
    if (!phases.empty()) phases.back().peak_bytes = std::max(phases.back().peak_bytes, total);
    if (total > peak) mark_peak();
    sample();
  }

  void mark_peak() {
    peak = total;
    at_peak = owners;
    unclaimed_at_peak = unclaimed;
    peak_phase = phase;
  }

  void forget(std::unordered_map<const void*, Block>::iterator entry, int64_t bytes) {
    owners[static_cast<size_t>(entry->second.owner)] -= entry->second.bytes;
    unclaimed -= bytes - entry->second.bytes;  // a claimed block may have been a little larger
    total -= bytes;
    blocks.erase(entry);
  }

  void freed(const void* block, int64_t bytes) {
    const auto entry = blocks.find(block);
    if (entry != blocks.end()) {
      forget(entry, bytes);
    } else {
      unclaimed -= bytes;
      total -= bytes;
    }
    sample();
  }

  void claim(const at::Tensor& tensor, Owner to) {
    if (!tensor.defined() || tensor.device().type() != device.type() || !tensor.has_storage())
      return;
    const void* block = tensor.storage().data();
    if (block == nullptr) return;
    const auto entry = blocks.find(block);
    if (entry != blocks.end()) {
      owners[static_cast<size_t>(entry->second.owner)] -= entry->second.bytes;
      owners[static_cast<size_t>(to)] += entry->second.bytes;
      entry->second.owner = to;
      return;
    }
    int64_t bytes = static_cast<int64_t>(tensor.storage().nbytes());
    if (device.is_cuda()) bytes = (bytes + kGpuBlock - 1) / kGpuBlock * kGpuBlock;
    add(block, bytes, to);
    unclaimed -= bytes;
  }

  // Few enough to keep, in even steps; the peak is kept by itself.
  void sample() {
    if (++changes % stride != 0) return;
    samples.push_back(now());
    if (samples.size() < kMostSamples) return;
    for (size_t i = 0; i < samples.size() / 2; ++i) samples[i] = std::move(samples[2 * i + 1]);
    samples.resize(samples.size() / 2);
    stride *= 2;
  }

  LedgerSample now() const {
    return {std::chrono::duration<double, std::milli>(Clock::now() - start).count(), phase, total,
            owners};
  }

  void leave_phase(const MemoryReading& now_held) {
    if (phases.empty()) return;
    LedgerPhase& ended = phases.back();
    ended.allocated_bytes = total;
    ended.reserved_bytes = now_held.reserved_bytes;
    ended.max_reserved_bytes = now_held.max_reserved_bytes;
    ended.rss_bytes = now_held.rss_bytes;
  }

  void enter(const char* name, const MemoryReading& now_held) {
    leave_phase(now_held);
    phase = name;
    phases.push_back({phase, total, total, 0, 0, 0});
    if (total >= peak) mark_peak();  // with what has been claimed since
    samples.push_back(now());
    owner = phase == "data"                                     ? Owner::Data
            : phase == "forward"                                ? Owner::Activations
            : phase.ends_with("backward")                       ? Owner::OutputGradients
            : phase.starts_with("cl") || phase == "norm_reduce" ? Owner::EngineTemporaries
                                                                : Owner::StepTemporaries;
  }
};

Ledger& ledger() {
  static Ledger instance;
  return instance;
}

// The CUDA allocator reports to whatever profiler state the thread carries; autograd's threads
// carry their caller's.
class GpuReports : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* block, int64_t bytes, size_t, size_t, c10::Device device) override {
    detail::ledger_counts(block, bytes, device);
  }
  void reportOutOfMemory(int64_t bytes, size_t, size_t, c10::Device device) override {
    note_out_of_memory(bytes, device);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

// One sample of each stretch of time: its largest.
std::vector<LedgerSample> thinned(std::vector<LedgerSample> samples) {
  if (samples.size() <= kTimelineSamples) return samples;
  std::vector<LedgerSample> kept;
  const double end = samples.back().ms, begin = samples.front().ms;
  const double width = std::max(end - begin, 1e-9) / static_cast<double>(kTimelineSamples);
  size_t bucket = kTimelineSamples;
  for (LedgerSample& sample : samples) {
    const size_t own =
        std::min(kTimelineSamples - 1, static_cast<size_t>((sample.ms - begin) / width));
    if (kept.empty() || own != bucket) {
      kept.push_back(std::move(sample));
      bucket = own;
    } else if (sample.total_bytes > kept.back().total_bytes) {
      kept.back() = std::move(sample);
    }
  }
  return kept;
}

}  // namespace

namespace detail {

std::atomic<bool> ledger_is_kept{false};

Owner exchange_owner(Owner owner) {
  const std::lock_guard lock(ledger().mutex);
  return std::exchange(ledger().owner, owner);
}

void restore_owner(Owner owner) {
  const std::lock_guard lock(ledger().mutex);
  ledger().owner = owner;
}

void claim_block(const at::Tensor& tensor, Owner owner) {
  const std::lock_guard lock(ledger().mutex);
  if (ledger_is_kept.load()) ledger().claim(tensor, owner);
}

void ledger_counts(const void* block, int64_t bytes, c10::Device device) {
  const std::lock_guard lock(ledger().mutex);
  if (!ledger_is_kept.load() || device.type() != ledger().device.type()) return;
  if (bytes > 0) {
    ledger().allocated(block, bytes);
  } else {
    ledger().freed(block, -bytes);
  }
}

void ledger_enters_phase(const char* phase) {
  // Before our lock: allocators call us with theirs in hand.
  const MemoryReading now_held = read_memory(ledger().device);
  const std::lock_guard lock(ledger().mutex);
  if (ledger_is_kept.load()) ledger().enter(phase, now_held);
}

}  // namespace detail

struct LedgerScope::Guards {
  std::unique_ptr<c10::DebugInfoGuard> reports;
};

LedgerScope::LedgerScope(c10::Device device)
    : device_(device), guards_(std::make_unique<Guards>()) {
  reset_peak_memory(device);
  const int64_t held = read_memory(device).allocated_bytes;  // before our lock, as below
  const std::lock_guard lock(ledger().mutex);
  MS_ASSERT(!detail::ledger_is_kept.load(), "two ledgers at once");
  Ledger& l = ledger();
  l.device = device;
  l.blocks.clear();
  l.owner = Owner::Data;
  l.owners = l.at_peak = {};
  l.total = l.peak = l.unclaimed = l.unclaimed_at_peak = held;
  l.phase.clear();
  l.peak_phase.clear();
  l.phases.clear();
  l.samples.clear();
  l.stride = 1;
  l.changes = 0;
  l.start = Clock::now();
  if (device.is_cuda())
    guards_->reports = std::make_unique<c10::DebugInfoGuard>(c10::DebugInfoKind::PROFILER_STATE,
                                                             std::make_shared<GpuReports>());
  detail::ledger_is_kept.store(true);
}

LedgerScope::~LedgerScope() {
  guards_->reports.reset();
  const std::lock_guard lock(ledger().mutex);
  detail::ledger_is_kept.store(false);
  ledger().blocks.clear();
  ledger().samples.clear();
}

LedgerReport LedgerScope::finish() {
  const MemoryReading reading = read_memory(device_);
  const std::lock_guard lock(ledger().mutex);
  Ledger& l = ledger();
  l.leave_phase(reading);
  l.samples.push_back(l.now());
  LedgerReport report;
  report.peak_bytes = std::max(reading.max_allocated_bytes, l.peak);
  report.peak_phase = l.peak_phase;
  report.at_peak = l.at_peak;
  report.rest_at_peak = l.unclaimed_at_peak + report.peak_bytes - l.peak;
  report.at_end = l.owners;
  report.rest_at_end = reading.allocated_bytes;
  for (const int64_t bytes : l.owners) report.rest_at_end -= bytes;
  report.phases = l.phases;
  report.timeline = thinned(std::move(l.samples));
  l.samples.clear();
  return report;
}

}  // namespace moonshard::profile
