// Whose memory is it: every block that tensors hold has an owner while a ledger is kept (ledger.h).
// Code says it where it allocates (OwnerScope) or where it takes a tensor over (claim). Without a
// ledger both only look at a flag.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace moonshard::profile {

enum class Owner : uint8_t {
  Parameters,
  GatheredParameters,  ///< whole units of a sharded model, while they are used
  CastParameters,      ///< copies in the format of the computation
  Gradients,
  OptimizerState,
  Activations,
  OutputGradients,    ///< what the backward pass hands from layer to layer
  EngineKept,         ///< what a clipping engine holds until the factors are known
  NormSamples,        ///< per-sample norms and factors
  TemporariesGgt,     ///< Gram matrices of output gradients
  TemporariesAat,     ///< Gram matrices of activations
  EngineTemporaries,  ///< other work space of norms and sums
  Communication,      ///< buffers that travel
  Data,
  StepTemporaries,  ///< work space of noise, reduction and optimizer
  Count
};

inline constexpr size_t kOwners = static_cast<size_t>(Owner::Count);
using OwnerBytes = std::array<int64_t, kOwners>;

/// "parameters", "engine_kept", …: the names in records and plots.
const char* owner_name(Owner owner);

namespace detail {
extern std::atomic<bool> ledger_is_kept;
Owner exchange_owner(Owner owner);
void restore_owner(Owner owner);
void claim_block(const at::Tensor& tensor, Owner owner);
}  // namespace detail

/// Blocks that are allocated while this lives are that owner's. The innermost counts.
class OwnerScope {
 public:
  explicit OwnerScope(Owner owner) : on_(detail::ledger_is_kept.load(std::memory_order_relaxed)) {
    if (on_) before_ = detail::exchange_owner(owner);
  }
  ~OwnerScope() {
    if (on_) detail::restore_owner(before_);
  }
  OwnerScope(const OwnerScope&) = delete;
  OwnerScope& operator=(const OwnerScope&) = delete;

 private:
  bool on_;
  Owner before_ = Owner::Activations;
};

/// The block under the tensor is that owner's from now on.
inline void claim(const at::Tensor& tensor, Owner owner) {
  if (detail::ledger_is_kept.load(std::memory_order_relaxed)) detail::claim_block(tensor, owner);
}

}  // namespace moonshard::profile
