// Attributes memory to owners: while a step keeps a ledger (ledger.h), every block of its tensors
// has an owner. Code names it where it allocates (OwnerScope) or takes a tensor over (claim).
#pragma once

#include <atomic>
#include <utility>

#include <ATen/core/Tensor.h>

#include "runtime/profile/owner_names.h"

namespace moonshard::profile {

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

}  // namespace moonshard::profile
