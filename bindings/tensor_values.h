// Values of tensors in Lua's terms: shapes and options from arguments, numbers from tables and
// back, text.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include "bindings/arguments.h"

namespace moonshard::bindings {

/// { dtype = …, device = … } at argument n.
at::TensorOptions read_tensor_options(const Arguments& args, int n);

/// A list of sizes (or one size) at argument n: at most 64, none below -1.
std::vector<int64_t> read_sizes(const Arguments& args, int n);

/// The same for a new tensor, which must fit this machine's memory.
std::vector<int64_t> read_shape(const Arguments& args, int n);

/// ms.tensor: a number or nested tables of numbers. Integers keep all their digits.
sol::object tensor_from_table(const Arguments& args);

/// Elements as nested Lua tables; one element as a number.
sol::object nested_table(lua_State* L, const at::Tensor& tensor);

/// "Tensor float32 [2x3] cpu 24 bytes, min … mean … max …" and the corners.
std::string describe_tensor(const at::Tensor& tensor);

}  // namespace moonshard::bindings
