#include "runtime/privacy/joined_by_references.h"

#include <atomic>

namespace moonshard::privacy {
namespace {

std::atomic<bool> joined_everywhere{false};

}  // namespace

JoinedByReferences::JoinedByReferences() : before_(joined_everywhere.exchange(true)) {}

JoinedByReferences::~JoinedByReferences() {
  joined_everywhere.store(before_);
}

bool stands_in(const at::Tensor& tensor) {
  return joined_everywhere.load(std::memory_order_relaxed) && tensor.is_cpu() &&
         tensor.scalar_type() != at::kDouble;
}

}  // namespace moonshard::privacy
