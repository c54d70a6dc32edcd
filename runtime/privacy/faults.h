// Deliberate mistakes, one at a time, to prove that verification sees them. Only ScopedFault can
// switch one on, no option of an experiment reaches it, and every fault sits at the line it breaks.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace moonshard::privacy {

enum class Fault {
  None,
  NoBiasTerm,       ///< the bias's part of a layer's norm is left out
  NoCrossTerm,      ///< tied weights: the two uses' norms are added without their inner product
  NoPaddingRule,    ///< the padding row of an embedding counts like any other
  MicroStepNorm,    ///< the second micro-batch of an accumulation is not clipped
  WrongDenominator  ///< the sum is not divided by the batch size
};

struct FaultName {
  Fault fault;
  const char* name;
};
inline constexpr FaultName kFaultNames[] = {{Fault::NoBiasTerm, "no_bias_term"},
                                            {Fault::NoCrossTerm, "no_cross_term"},
                                            {Fault::NoPaddingRule, "no_padding_rule"},
                                            {Fault::MicroStepNorm, "micro_step_norm"},
                                            {Fault::WrongDenominator, "wrong_denominator"}};

inline std::atomic<Fault>& active_fault() {
  static std::atomic<Fault> fault{Fault::None};
  return fault;
}

inline bool has_fault(Fault fault) {
  return active_fault().load(std::memory_order_relaxed) == fault;
}

class ScopedFault {
 public:
  explicit ScopedFault(Fault fault) { active_fault() = fault; }
  ~ScopedFault() { active_fault() = Fault::None; }
  ScopedFault(const ScopedFault&) = delete;
  ScopedFault& operator=(const ScopedFault&) = delete;
};

}  // namespace moonshard::privacy
