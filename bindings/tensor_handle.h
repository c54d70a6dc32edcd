// Lua's handle of a tensor, which can be emptied. Lua's collector sees 16 bytes and not the
// megabytes behind them, so the handle reports memory pressure, can be freed by hand, and belongs
// to the scope it was made in.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "bindings/sol.h"

namespace moonshard::bindings {

class TensorHandle {
 public:
  explicit TensorHandle(at::Tensor tensor);

  /// The tensor; throws UsageError "function: … was freed" after free().
  const at::Tensor& get(const char* function) const;
  bool is_freed() const { return !box_->tensor.defined(); }
  void free();

  struct Box {
    at::Tensor tensor;
    int64_t bytes = 0;  ///< counted as pressure when it was made
    ~Box();
  };
  const std::shared_ptr<Box>& box() const { return box_; }

 private:
  std::shared_ptr<Box> box_;  ///< shared with the scope that may free it
};

/// Pushes a tensor into Lua. When the bytes made since the last collection reach the larger of 64
/// MiB and what was alive then, a full collection runs first: garbage never exceeds what is in use.
sol::object push_tensor(lua_State* L, const at::Tensor& tensor);

/// Bytes behind live handles.
int64_t live_tensor_bytes();

/// ms.scope as a Lua function: calls its argument; tensors made inside are freed at the end, except
/// those among the results (also inside returned tables). Freed when it raises, too.
int call_in_scope(lua_State* L);

}  // namespace moonshard::bindings
