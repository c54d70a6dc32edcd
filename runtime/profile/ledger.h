// A ledger of the memory that tensors hold during a step: bytes per owner at the peak, at the end
// of each phase, and over time. Unclaimed memory is the rest, so that the rows always add up to the
// allocator's count.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/profile/owner_names.h"

namespace moonshard::profile {

// Attributes memory to owners: while a step keeps a ledger (ledger.h), every block of its tensors
// has an owner. Code names it where it allocates (OwnerScope) or takes a tensor over (claim).

namespace detail {
extern std::atomic<int64_t> open_ledgers;
/// The owner of what this thread allocates; Count leaves it to the phase.
extern constinit thread_local Owner thread_owner;
void claim_block(const at::Tensor& tensor, Owner owner);
}  // namespace detail

/// Blocks that this thread allocates while this lives belong to that owner. The innermost scope
/// wins.
class OwnerScope {
 public:
  explicit OwnerScope(Owner owner) : before_(std::exchange(detail::thread_owner, owner)) {}
  ~OwnerScope() { detail::thread_owner = before_; }
  OwnerScope(const OwnerScope&) = delete;
  OwnerScope& operator=(const OwnerScope&) = delete;

 private:
  Owner before_;
};

/// The tensor's block belongs to that owner from now on, in the ledger of the current step. Without
/// a ledger this only checks a counter.
inline void claim(const at::Tensor& tensor, Owner owner) {
  if (detail::open_ledgers.load(std::memory_order_relaxed) > 0) detail::claim_block(tensor, owner);
}

struct LedgerPhase {
  std::string phase;
  int64_t allocated_bytes = 0;                                        ///< when it ended
  int64_t peak_bytes = 0;                                             ///< the most while it ran
  int64_t reserved_bytes = 0, max_reserved_bytes = 0, rss_bytes = 0;  ///< when it ended
};

struct LedgerSample {
  double ms = 0;  ///< host time since the beginning; on a GPU when the work was enqueued
  std::string phase;
  int64_t total_bytes = 0;
  OwnerBytes owners{};
};

struct LedgerReport {
  int64_t peak_bytes = 0;  ///< the allocator's own count; see Ledger
  double mean_bytes = 0;   ///< over the time of the ledger
  std::string peak_phase;
  OwnerBytes at_peak{}, at_end{};
  int64_t rest_at_peak = 0;  ///< what no owner claimed
  int64_t rest_at_end = 0;
  std::vector<LedgerPhase> phases;
  std::vector<LedgerSample> timeline;  ///< at most kTimelineSamples, the peak among them
};

inline constexpr size_t kTimelineSamples = 400;

/// The ledger of one step (context.h) on one device: of what is allocated while its context is
/// current. Tensors that existed before it began are the rest until claimed.
///
/// The allocator counts for the whole process. Where another trainer's step ran at the same time,
/// its peak is not this step's, and the totals are what was held at the beginning plus what this
/// step has allocated and freed since.
class Ledger {
 public:
  explicit Ledger(c10::Device device);
  ~Ledger();

  void enter_phase(const char* phase);
  void claim(const at::Tensor& tensor, Owner owner);
  /// Ends the ledger.
  LedgerReport finish();

  /// Called by the allocators while a ledger is open: this thread allocated a block (bytes > 0) or
  /// freed one. `age` is ledgers_begun when it was allocated; 0 if unknown.
  static void count(const void* block, int64_t bytes, c10::Device device, uint64_t age);

  struct Book;

 private:
  std::unique_ptr<Book> book_;
};

namespace detail {

/// Number of ledgers begun so far: the allocator's hook stores it with every host block, so that a
/// ledger knows whether a block that is freed existed before it.
extern std::atomic<uint64_t> ledgers_begun;
}  // namespace detail

}  // namespace moonshard::profile
