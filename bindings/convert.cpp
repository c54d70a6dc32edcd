#include "bindings/convert.h"

#include <cmath>
#include <map>

#include <ATen/ATen.h>

#include "bindings/arguments.h"
#include "bindings/tensor_handle.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"
#include "runtime/core/device.h"
#include "runtime/models/registry.h"

namespace moonshard::bindings {
namespace {

constexpr int kMaxDepth = 64;

class LuaReader {
 public:
  LuaReader(lua_State* L, const std::string& where) : state_(L), where_(where) {}

  Json read(int index, int depth) const {
    switch (lua_type(state_, index)) {
      case LUA_TNIL:
        return nullptr;
      case LUA_TBOOLEAN:
        return lua_toboolean(state_, index) != 0;
      case LUA_TSTRING: {
        size_t length = 0;
        const char* data = lua_tolstring(state_, index, &length);
        return std::string(data, length);
      }
      case LUA_TTABLE:
        return read_table(index, depth + 1);
      case LUA_TLIGHTUSERDATA:
        if (lua_touserdata(state_, index) == nullptr) return nullptr;  // ms.null
        break;
      default:
        break;
    }
    if (const auto whole = exact_integer(state_, index)) return *whole;
    if (lua_type(state_, index) == LUA_TNUMBER) return lua_tonumber(state_, index);
    fail("nil, true, false, a number, a text or a table", describe_value(state_, index));
  }

 private:
  Json read_table(int index, int depth) const {
    if (depth > kMaxDepth) fail("a table nested at most 64 deep", "a deeper or circular one");
    MS_CHECK(lua_checkstack(state_, 8) != 0, "{}: the Lua stack is full", where_);
    const size_t length = lua_objlen(state_, index);
    return length > 0 ? read_list(index, length, depth) : read_object(index, depth);
  }

  Json read_list(int index, size_t length, int depth) const {
    Json list = Json::array();
    for (size_t i = 1; i <= length; ++i) {
      lua_rawgeti(state_, index, static_cast<int>(i));
      list.push_back(read_top(depth));
    }
    size_t keys = 0;
    for (lua_pushnil(state_); lua_next(state_, index) != 0; lua_pop(state_, 1)) ++keys;
    if (keys != length) fail("a list or a table of named values", "a table that is both");
    return list;
  }

  Json read_object(int index, int depth) const {
    std::map<std::string, Json> object;
    lua_pushnil(state_);
    while (lua_next(state_, index) != 0) {
      if (lua_type(state_, -2) != LUA_TSTRING) {
        const std::string got = describe_value(state_, -2);
        lua_pop(state_, 2);
        fail("names as keys of a table", got);
      }
      size_t length = 0;
      const char* data = lua_tolstring(state_, -2, &length);
      const std::string key(data, length);
      lua_pushvalue(state_, -1);
      object[key] = read_top(depth);
      lua_pop(state_, 1);
    }
    // lua_next has no fixed order; with sorted keys equal tables give equal texts.
    Json sorted = Json::object();
    for (auto& [key, value] : object) sorted[key] = std::move(value);
    return sorted;
  }

  // Reads and pops the value on top, also when reading throws.
  Json read_top(int depth) const {
    const int top = lua_gettop(state_);
    try {
      Json value = read(top, depth);
      lua_settop(state_, top - 1);
      return value;
    } catch (...) {
      lua_settop(state_, top - 1);
      throw;
    }
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& got) const {
    throw UsageError(fmt::format("{}: expected {}, got {}", where_, expected, got));
  }

  lua_State* state_;
  const std::string& where_;
};

struct Field {
  const char* name;
  at::Tensor Batch::*tensor;
  bool whole;  ///< ids and labels
};

const std::vector<Field>& fields() {
  static const std::vector<Field> list = {
      {"input_ids", &Batch::input_ids, true}, {"attention_mask", &Batch::attention_mask, true},
      {"labels", &Batch::labels, true},       {"inputs", &Batch::inputs, false},
      {"targets", &Batch::targets, false},    {"timesteps", &Batch::timesteps, true}};
  return list;
}

}  // namespace

Json to_json(lua_State* L, int index, const std::string& where) {
  const int absolute = index > 0 ? index : lua_gettop(L) + index + 1;
  return LuaReader(L, where).read(absolute, 0);
}

void push_integer(lua_State* L, int64_t value) {
  if (std::abs(static_cast<double>(value)) < 9007199254740992.0) {
    lua_pushnumber(L, static_cast<double>(value));
    return;
  }
  // Built from two halves by the FFI: the C API cannot make such a value.
  const auto chunk = sol::state_view(L).load(
      "local high, low = ... return require('ffi').cast('int64_t', high) * 4294967296LL + low",
      "=int64", sol::load_mode::text);
  const sol::protected_function make = chunk.get<sol::protected_function>();
  const int64_t low = value & 0xffffffff;
  const auto made = make(static_cast<double>((value - low) / 4294967296), static_cast<double>(low));
  MS_CHECK(made.valid(),
           "integer {}: expected LuaJIT's ffi library, which holds integers beyond 2^53, got none",
           value);
  sol::stack::push(L, made.get<sol::object>());
}

void push_json(lua_State* L, const Json& value) {
  MS_CHECK(lua_checkstack(L, 8) != 0, "record: nested too deep for the Lua stack");
  switch (value.type()) {
    case Json::value_t::boolean:
      lua_pushboolean(L, value.get<bool>() ? 1 : 0);
      return;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      push_integer(L, value.get<int64_t>());
      return;
    case Json::value_t::number_float:
      lua_pushnumber(L, value.get<double>());
      return;
    case Json::value_t::string: {
      const std::string& text = value.get_ref<const std::string&>();
      lua_pushlstring(L, text.data(), text.size());
      return;
    }
    case Json::value_t::array: {
      lua_createtable(L, static_cast<int>(value.size()), 0);
      int i = 0;
      for (const Json& item : value) {
        push_json(L, item);
        lua_rawseti(L, -2, ++i);
      }
      return;
    }
    case Json::value_t::object: {
      lua_createtable(L, 0, static_cast<int>(value.size()));
      for (const auto& [key, item] : value.items()) {
        lua_pushlstring(L, key.data(), key.size());
        push_json(L, item);
        lua_rawset(L, -3);
      }
      return;
    }
    default:
      lua_pushnil(L);
      return;
  }
}

sol::object to_lua(lua_State* L, const Json& value) {
  push_json(L, value);
  sol::object result(L, -1);
  lua_pop(L, 1);
  return result;
}

sol::table push_batch(lua_State* L, const Batch& batch) {
  sol::table table(L, sol::create);
  for (const Field& field : fields()) {
    const at::Tensor& tensor = batch.*field.tensor;
    if (tensor.defined()) table[field.name] = push_tensor(L, tensor);
  }
  return table;
}

Batch read_batch(const Arguments& args, int n, const models::Model& model) {
  const sol::table table = args.table(n, "batch");
  const std::string& task = model.options().task;
  OptionSchema names(args.function_name());
  std::vector<std::string> known;
  for (const Field& field : fields()) known.emplace_back(field.name);
  names.also_known(known);
  for (const auto& [key, value] : table) {
    const std::string name = key.is<std::string>() ? key.as<std::string>() : "(a number)";
    if (!names.is_also_known(name)) names.fail_unknown(name);
  }
  Batch batch;
  const models::Task* described = models::find_task(task);
  const std::vector<std::string> required =
      described == nullptr ? std::vector<std::string>{} : described->batch_fields;
  for (const Field& field : fields()) {
    const sol::object value = table.raw_get<sol::object>(field.name);
    const bool given = value.valid() && value.get_type() != sol::type::lua_nil;
    const bool needed = std::find(required.begin(), required.end(), field.name) != required.end();
    MS_CHECK(value.is<TensorHandle>() || (!given && !needed),
             "{}: batch field '{}': expected a Tensor for task {}, got {}; take batches from "
             "data:next()",
             args.function_name(), field.name, task, given ? "something else" : "nothing");
    if (!given) continue;
    const at::Tensor& tensor = value.as<TensorHandle&>().get(args.function_name());
    MS_CHECK(!field.whole || !tensor.is_floating_point() || at::equal(tensor, tensor.round()),
             "{}: batch field '{}': expected whole numbers, got fractions", args.function_name(),
             field.name);
    MS_CHECK(tensor.dim() >= 1,
             "{}: batch field '{}': expected [samples, ...], got a single number",
             args.function_name(), field.name);
    batch.*field.tensor = field.whole ? tensor.to(at::kLong) : tensor;
  }
  if (batch.input_ids.defined() && !batch.attention_mask.defined())
    batch.attention_mask = at::ones_like(batch.input_ids);
  if (batch.attention_mask.defined()) {
    const at::Tensor& mask = batch.attention_mask;
    MS_CHECK(mask.eq(0).logical_or(mask.eq(1)).all().item<bool>(),
             "{}: batch field 'attention_mask': expected 0 and 1, got other numbers",
             args.function_name());
    batch.attention_mask = mask.to(at::kBool);
  }
  model.check(batch);
  const c10::Device device = resolve_device(model.options().device);
  for (const Field& field : fields()) {
    at::Tensor& tensor = batch.*field.tensor;
    if (tensor.defined()) tensor = tensor.to(device);
  }
  return batch;
}

}  // namespace moonshard::bindings
