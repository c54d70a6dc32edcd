// A Lua function that the runtime calls back: a norm of an engine, a rule of a layer. It may
// outlive its script and even its Lua state; a call after that is an error, never a crash.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "bindings/sol.h"
#include "runtime/models/parameter.h"

namespace moonshard::bindings {

struct CallbackLife;  ///< ends with the Lua state

class LuaCallback {
 public:
  /// Holds the function at the top of the stack, and pops it. `name` prefixes error texts.
  LuaCallback(lua_State* L, std::string name);

  /// function(layer, tensors…) -> Tensor; undefined tensors arrive as nil, the layer as a table of
  /// name, kind, weight_shape, has_bias, trains_weight, trains_bias, padding_id. Throws UsageError
  /// when it raises or returns something else. Runs on the thread that waits for the result: the
  /// state is never shared.
  at::Tensor operator()(const models::ParamLayer& layer,
                        const std::vector<at::Tensor>& tensors) const;

 private:
  std::shared_ptr<CallbackLife> life_;
  int reference_;
  std::string name_;
};

}  // namespace moonshard::bindings
