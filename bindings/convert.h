// Lua values to JSON and back. Bounded in depth, refuses cycles, keeps int64 digits.
#pragma once

#include <string>

#include "bindings/arguments.h"
#include "bindings/sol.h"
#include "runtime/base/json.h"
#include "runtime/models/model.h"

namespace moonshard::bindings {

/// The value at a stack position. Tables with keys 1…n are lists, an empty table is an object, all
/// other keys must be strings, ms.null (a null pointer) is null. Throws UsageError "where: …" for
/// functions, userdata, mixed keys, or depth > 64.
Json to_json(lua_State* L, int index, const std::string& where);

/// Pushes a JSON value. Integers beyond 2^53 become LuaJIT int64 values.
void push_json(lua_State* L, const Json& value);
sol::object to_lua(lua_State* L, const Json& value);

/// Pushes an integer without losing digits: a number up to 2^53, an int64 FFI value beyond.
void push_integer(lua_State* L, int64_t value);

// Batches for Lua: tables of tensors with the names of the Batch struct.

sol::table push_batch(lua_State* L, const Batch& batch);

/// Reads argument n as a batch for the model's task, onto the model's device. A missing
/// attention_mask means that all tokens are real. Throws UsageError that names the field.
Batch read_batch(const Arguments& args, int n, const models::Model& model);

}  // namespace moonshard::bindings
