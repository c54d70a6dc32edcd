// Which form a layer takes: plain operations that autograd differentiates, or one autograd function
// around fused kernels. The plain form defines the numbers; it runs on the CPU, in float64, and
// wherever the kernels do not.
#pragma once

namespace moonshard::models {

/// `kernel_runs`: whether the operation's kernel supports its tensors.
bool takes_fused_form(bool kernel_runs);

/// For tests of the fused graph without a GPU: while it lives, layers take the fused form
/// everywhere, and the operations' references replace the kernels.
class FusedByReferences {
 public:
  FusedByReferences();
  ~FusedByReferences();
  FusedByReferences(const FusedByReferences&) = delete;
  FusedByReferences& operator=(const FusedByReferences&) = delete;

 private:
  bool before_;
};

}  // namespace moonshard::models
