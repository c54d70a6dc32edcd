#include "viewer/tracing/snapshot_owner.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

namespace moonshard::viewer {
namespace {

using Words = std::initializer_list<std::string_view>;

bool has_any(std::string_view text, Words words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

bool is_any(std::string_view text, Words words) {
  return std::ranges::find(words, text) != words.end();
}

// Buffers that a library keeps for itself from its first call on, whoever made that.
bool is_workspace(const StackFrame& frame) {
  return has_any(frame.function, {"setWorkspaceForHandle", "getCUDABlasLtWorkspace",
                                  "allocate_workspace", "cudnn::Workspace"});
}

bool optimizes(const StackFrame& frame) {
  return has_any(frame.file, {"torch/optim/", "torch\\optim\\"}) ||
         has_any(frame.function, {"moonshard::optim::", "torch::optim::", "_fused_adam",
                                  "_fused_sgd", "Optimizer.step"});
}

bool communicates(const StackFrame& frame) {
  return has_any(frame.file, {"torch/distributed/"}) ||
         has_any(frame.function, {"c10d::", "ProcessGroup", "nccl", "moonshard::sharding::"});
}

bool goes_backward(const StackFrame& frame) {
  return is_any(frame.function, {"backward", "_engine_run_backward"}) ||
         has_any(frame.function, {"torch::autograd::Engine", "::backward(", "Backward0::apply"});
}

bool makes_parameters(const StackFrame& frame) {
  const bool module = has_any(frame.file, {"nn/modules/"});
  return (module && is_any(frame.function, {"_apply", "cuda", "to", "load_state_dict", "__init__",
                                            "reset_parameters"})) ||
         has_any(frame.function, {"torch::nn::Module::to", "reset_parameters"});
}

bool goes_forward(const StackFrame& frame) {
  return frame.function == "forward" || has_any(frame.function, {"::forward("});
}

bool loads_data(const StackFrame& frame) {
  return has_any(frame.file, {"torch/utils/data/"}) ||
         has_any(frame.function, {"moonshard::data::", "DataLoader", "collate", "pin_memory"});
}

std::string short_name(const StackFrame& frame) {
  std::string_view name = frame.function.substr(0, frame.function.find('('));
  if (name.size() > 60) name = name.substr(name.size() - 60);
  const std::string_view file = frame.file.substr(frame.file.rfind('/') + 1);
  if (file.empty() || file == "??" || frame.line <= 0) return std::string(name);
  return fmt::format("{} ({}:{})", name, file, frame.line);
}

}  // namespace

bool is_machinery(const StackFrame& frame) {
  return frame.function.empty() ||
         has_any(frame.function,
                 {"unwind", "gather_with_cpp", "CapturedTraceback", "CachingAllocator", "_PyEval",
                  "PyObject_", "PyRun_", "_PyRun", "Py_RunMain", "Py_BytesMain", "__libc_",
                  "c10::impl::", "c10::Dispatcher", "at::_ops::", "at::detail::"});
}

std::string owner_of_stack(const std::vector<StackFrame>& stack) {
  struct Rule {
    const char* owner;
    bool (*says)(const StackFrame&);
  };
  constexpr Rule kRules[] = {{"library workspace", is_workspace},
                             {"optimizer", optimizes},
                             {"communication", communicates},
                             {"backward", goes_backward},
                             {"forward", goes_forward},
                             {"parameters", makes_parameters},
                             {"data", loads_data}};
  for (const Rule& rule : kRules) {
    if (std::ranges::any_of(stack, rule.says)) return rule.owner;
  }
  for (const StackFrame& frame : stack) {
    const bool torch =
        has_any(frame.file, {"torch/"}) || has_any(frame.function, {"at::", "torch::", "c10::"});
    const bool python = frame.file.ends_with(".py");
    if (!torch && !is_machinery(frame) && (python || has_any(frame.function, {"::"}))) {
      return short_name(frame);
    }
  }
  return "other";
}

}  // namespace moonshard::viewer
