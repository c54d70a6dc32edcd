// A ledger of all memory that tensors hold during a step: who owns how much at the moment of the
// peak, at the end of each phase, and over time. What nobody claimed is the rest, so that the rows
// always add up to what the allocator counts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/profile/owners.h"

namespace moonshard::profile {

struct LedgerPhase {
  std::string phase;
  int64_t allocated_bytes = 0;                                        ///< when it ended
  int64_t peak_bytes = 0;                                             ///< the most while it ran
  int64_t reserved_bytes = 0, max_reserved_bytes = 0, rss_bytes = 0;  ///< when it ended
};

struct LedgerSample {
  double ms = 0;  ///< host time since the beginning; on a GPU this is when the work was asked for
  std::string phase;
  int64_t total_bytes = 0;
  OwnerBytes owners{};
};

struct LedgerReport {
  int64_t peak_bytes = 0;  ///< the allocator's own count
  std::string peak_phase;
  OwnerBytes at_peak{}, at_end{};
  int64_t rest_at_peak = 0;  ///< what no owner claimed
  int64_t rest_at_end = 0;
  std::vector<LedgerPhase> phases;
  std::vector<LedgerSample> timeline;  ///< at most kTimelineSamples, the peak among them
};

inline constexpr size_t kTimelineSamples = 400;

/// Keeps the ledger of one device while it lives: for allocations of this thread and of the work
/// that it starts. One at a time.
class LedgerScope {
 public:
  explicit LedgerScope(c10::Device device);
  ~LedgerScope();
  LedgerScope(const LedgerScope&) = delete;
  LedgerScope& operator=(const LedgerScope&) = delete;
  LedgerReport finish();

 private:
  struct Guards;
  c10::Device device_;
  std::unique_ptr<Guards> guards_;
};

namespace detail {
/// By the CPU allocator's hook and the phase timer, when a ledger is kept.
void ledger_counts(const void* block, int64_t bytes, c10::Device device);
void ledger_enters_phase(const char* phase);
}  // namespace detail

}  // namespace moonshard::profile
