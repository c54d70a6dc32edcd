#include "runtime/models/blocks/fused.h"

#include <atomic>

namespace moonshard::models {
namespace {

std::atomic<bool> fused_everywhere{false};

}  // namespace

bool takes_fused_form(bool kernel_runs) {
  return kernel_runs || fused_everywhere.load(std::memory_order_relaxed);
}

FusedByReferences::FusedByReferences() : before_(fused_everywhere.exchange(true)) {}

FusedByReferences::~FusedByReferences() {
  fused_everywhere.store(before_);
}

}  // namespace moonshard::models
