// Deterministic algorithms are a process-wide setting: on while a guard lives, then restored.
#pragma once

namespace moonshard {

class DeterminismGuard {
 public:
  explicit DeterminismGuard(bool on);
  ~DeterminismGuard();
  DeterminismGuard(const DeterminismGuard&) = delete;
  DeterminismGuard& operator=(const DeterminismGuard&) = delete;

 private:
  bool on_, before_, efficient_attention_before_;
};

}  // namespace moonshard
