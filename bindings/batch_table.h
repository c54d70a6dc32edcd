// Batches for Lua: tables of tensors with the names of the Batch struct.
#pragma once

#include "bindings/arguments.h"
#include "bindings/sol.h"
#include "runtime/models/model.h"

namespace moonshard::bindings {

sol::table push_batch(lua_State* L, const Batch& batch);

/// Reads argument n as a batch for the model's task, onto the model's device. A missing
/// attention_mask means that all tokens are real. Throws UsageError that names the field.
Batch read_batch(const Arguments& args, int n, const models::Model& model);

}  // namespace moonshard::bindings
