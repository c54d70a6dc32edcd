// What engines do on a GPU only (layers of a block in one launch, gradients kept in 16 bits, rows
// handed on to the update, embeddings by their operation), for tests without one.
#pragma once

#include <atomic>

#include <ATen/core/Tensor.h>

namespace moonshard::privacy {

/// While it lives, engines work on the CPU as they do on a Hopper GPU, in bfloat16 and float32, and
/// the operations' references stand in for the kernels; engine auto goes by formulas, or by timings
/// of the references.
class JoinedByReferences {
 public:
  enum class Costs { Formulas, Timings };

  explicit JoinedByReferences(Costs costs = Costs::Formulas)
      : before_(everywhere_.exchange(true)),
        timed_before_(timed_.exchange(costs == Costs::Timings)) {}
  ~JoinedByReferences() {
    everywhere_.store(before_);
    timed_.store(timed_before_);
  }
  JoinedByReferences(const JoinedByReferences&) = delete;
  JoinedByReferences& operator=(const JoinedByReferences&) = delete;

 private:
  friend bool stands_in(const at::Tensor& tensor);
  friend bool is_timed_in_place(const at::Tensor& tensor);

  static inline std::atomic<bool> everywhere_{false}, timed_{false};
  bool before_, timed_before_;
};

/// The tensor is one that the references stand in for; false on a GPU, where kernels decide.
inline bool stands_in(const at::Tensor& tensor) {
  return JoinedByReferences::everywhere_.load(std::memory_order_relaxed) && tensor.is_cpu() &&
         tensor.scalar_type() != at::kDouble;
}

inline bool is_timed_in_place(const at::Tensor& tensor) {
  return stands_in(tensor) && JoinedByReferences::timed_.load(std::memory_order_relaxed);
}

}  // namespace moonshard::privacy
