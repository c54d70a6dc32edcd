#include "runtime/profile/ledger.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>

#include "runtime/profile/context.h"
#include "runtime/profile/memory.h"

namespace moonshard::profile {
namespace {

using LedgerClock = std::chrono::steady_clock;

// Blocks of the CUDA allocator are multiples of this; a claimed tensor's block is at least this
// large.
constexpr int64_t kGpuBlock = 512;
constexpr size_t kMostSamples = 1u << 17;

// Guards the list of open books and their contents: allocations come from any thread, also while a
// ledger begins and ends. Never call an allocator while holding it: allocators call us with their
// own locks held.
std::mutex books_mutex;
std::vector<Ledger::Book*> open_books;

Owner owner_by_phase(const std::string& phase) {
  if (phase.empty() || phase == "data") return Owner::Data;
  if (phase == "forward") return Owner::Activations;
  if (phase.ends_with("backward")) return Owner::OutputGradients;
  if (phase.starts_with("cl") || phase == "norm_reduce") return Owner::EngineTemporaries;
  return Owner::StepTemporaries;
}

}  // namespace

struct Ledger::Book {
  struct Block {
    int64_t bytes;
    Owner owner;
    uint64_t age;  ///< ledgers that had begun when it was allocated; 0: there before this one
  };
  using Blocks = std::unordered_map<const void*, Block>;

  c10::Device device = c10::kCPU;
  uint64_t number = 0;  ///< of this ledger among all that have begun
  StepCounts steps;     ///< when it began
  Blocks blocks;
  OwnerBytes owners{};
  int64_t unclaimed = 0;  ///< held since before the ledger, owner unknown
  int64_t total = 0, peak = 0;
  OwnerBytes at_peak{};
  int64_t unclaimed_at_peak = 0;
  std::string phase, peak_phase;
  std::vector<LedgerPhase> phases;
  std::vector<LedgerSample> samples;
  size_t stride = 1, changes = 0;
  LedgerClock::time_point start = LedgerClock::now(), counted_until = start;
  double byte_seconds = 0;      ///< up to counted_until
  int64_t total_until_now = 0;  ///< since counted_until

  bool is_of(c10::Device other) const {
    return device.type() == other.type() &&
           (!device.has_index() || !other.has_index() || device.index() == other.index());
  }

  void add(const void* block, int64_t bytes, Owner to, uint64_t age) {
    blocks[block] = {bytes, to, age};
    owners[static_cast<size_t>(to)] += bytes;
  }

  void allocated(const void* block, int64_t bytes, uint64_t age) {
    add(block, bytes,
        detail::thread_owner == Owner::Count ? owner_by_phase(phase) : detail::thread_owner, age);
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

  void forget(Blocks::iterator entry, int64_t bytes) {
    owners[static_cast<size_t>(entry->second.owner)] -= entry->second.bytes;
    unclaimed -= bytes - entry->second.bytes;  // a claimed block may have been a little larger
    total -= bytes;
    blocks.erase(entry);
  }

  void claim(const at::Tensor& tensor, Owner to) {
    if (!tensor.defined() || !is_of(tensor.device()) || !tensor.has_storage()) return;
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
    add(block, bytes, to, 0);
    unclaimed -= bytes;
  }

  // After every change of the total, which held since the one before.
  void count_time() {
    const auto now = LedgerClock::now();
    const std::chrono::duration<double> passed = now - counted_until;
    byte_seconds += static_cast<double>(total_until_now) * passed.count();
    counted_until = now;
    total_until_now = total;
  }

  double mean() const {
    const double seconds = std::chrono::duration<double>(counted_until - start).count();
    return seconds > 0 ? byte_seconds / seconds : static_cast<double>(total);
  }

  // Downsamples evenly; the peak is kept separately.
  void sample() {
    count_time();
    if (++changes % stride != 0) return;
    samples.push_back(now());
    if (samples.size() < kMostSamples) return;
    for (size_t i = 0; i < samples.size() / 2; ++i) samples[i] = std::move(samples[2 * i + 1]);
    samples.resize(samples.size() / 2);
    stride *= 2;
  }

  LedgerSample now() const {
    return {std::chrono::duration<double, std::milli>(LedgerClock::now() - start).count(), phase,
            total, owners};
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
    if (total >= peak) mark_peak();  // including claims since then
    samples.push_back(now());
  }

  // Whether no other step ran during this ledger.
  bool was_alone() const { return steps.running == 0 && count_steps().begun <= steps.begun + 1; }

  bool is_open() const {
    return std::find(open_books.begin(), open_books.end(), this) != open_books.end();
  }
  void close() {
    std::erase(open_books, this);
    detail::open_ledgers.store(static_cast<int64_t>(open_books.size()));
  }
};

namespace {

// Keeps the largest sample of each interval.
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

std::atomic<int64_t> open_ledgers{0};
std::atomic<uint64_t> ledgers_begun{0};
constinit thread_local Owner thread_owner = Owner::Count;

void claim_block(const at::Tensor& tensor, Owner owner) {
  const auto context = current_context();
  if (context != nullptr && context->ledger != nullptr) context->ledger->claim(tensor, owner);
}

}  // namespace detail

Ledger::Ledger(c10::Device device) : book_(std::make_unique<Book>()) {
  reset_peak_memory(device);
  book_->device = device;
  book_->steps = count_steps();
  const int64_t held = read_memory(device).allocated_bytes;
  book_->total = book_->peak = book_->unclaimed = book_->unclaimed_at_peak = held;
  book_->total_until_now = held;
  const std::lock_guard lock(books_mutex);
  book_->number = ++detail::ledgers_begun;
  open_books.push_back(book_.get());
  detail::open_ledgers.store(static_cast<int64_t>(open_books.size()));
}

Ledger::~Ledger() {
  const std::lock_guard lock(books_mutex);
  book_->close();
}

void Ledger::count(const void* block, int64_t bytes, c10::Device device, uint64_t age) {
  const auto context = current_context();
  Book* own =
      context != nullptr && context->ledger != nullptr ? context->ledger->book_.get() : nullptr;
  const std::lock_guard lock(books_mutex);
  for (const Book* book : open_books)
    if (const auto entry = book->blocks.find(block); entry != book->blocks.end())
      age = std::max(age, entry->second.age);
  for (Book* book : open_books) {
    const auto entry = book->blocks.find(block);
    if (entry != book->blocks.end()) {
      // Freed, by any thread; or so long ago that its address was reused.
      book->forget(entry, bytes > 0 ? entry->second.bytes : -bytes);
    } else if (bytes < 0 && book->is_of(device) && age < book->number &&
               (book == own || (context == nullptr && book->was_alone()))) {
      book->unclaimed += bytes;  // it was there before the ledger
      book->total += bytes;
    } else {
      continue;  // another step's
    }
    book->sample();
  }
  if (bytes > 0 && own != nullptr && own->is_open() && own->is_of(device))
    own->allocated(block, bytes, detail::ledgers_begun.load());
}

void Ledger::enter_phase(const char* phase) {
  const MemoryReading now_held = read_memory(book_->device);
  const std::lock_guard lock(books_mutex);
  if (book_->is_open()) book_->enter(phase, now_held);
}

void Ledger::claim(const at::Tensor& tensor, Owner owner) {
  const std::lock_guard lock(books_mutex);
  if (book_->is_open()) book_->claim(tensor, owner);
}

LedgerReport Ledger::finish() {
  const MemoryReading reading = read_memory(book_->device);
  const std::lock_guard lock(books_mutex);
  Book& book = *book_;
  book.leave_phase(reading);
  book.samples.push_back(book.now());
  book.count_time();
  book.close();
  const bool alone = book.was_alone();
  LedgerReport report;
  report.peak_bytes = alone ? std::max(reading.max_allocated_bytes, book.peak) : book.peak;
  report.mean_bytes = book.mean();
  report.peak_phase = book.peak_phase;
  report.at_peak = book.at_peak;
  report.rest_at_peak = book.unclaimed_at_peak + report.peak_bytes - book.peak;
  report.at_end = book.owners;
  report.rest_at_end = alone ? reading.allocated_bytes : book.total;
  for (const int64_t bytes : book.owners) report.rest_at_end -= bytes;
  report.phases = book.phases;
  report.timeline = thinned(std::move(book.samples));
  return report;
}

}  // namespace moonshard::profile
