// Whose an allocation is, by its call stack: snapshots of PyTorch name no owner.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moonshard::viewer {

struct StackFrame {
  std::string_view function, file;
  long line = 0;
};

/// "library workspace" (cuBLAS), "optimizer", "communication", "backward", "forward", "parameters"
/// or "data" where some frame says so (in this order: a backward pass that gathers parameters is
/// communication); else the innermost function of the program's own code; else "other".
std::string owner_of_stack(const std::vector<StackFrame>& stack);

/// A frame of the allocator, the interpreter or the profiler itself, which says nothing.
bool is_machinery(const StackFrame& frame);

}  // namespace moonshard::viewer
