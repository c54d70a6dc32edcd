#include "bindings/lua_callback.h"

#include <new>

#include "bindings/convert.h"
#include "bindings/tensor_handle.h"
#include "runtime/base/check.h"

namespace moonshard::bindings {

// Calls run on a separate coroutine, which the registry holds: the coroutine that registered the
// function may be dead.
struct CallbackLife {
  lua_State* thread = nullptr;  ///< null once the state is closed
};

namespace {

constexpr const char* kLifeKey = "moonshard.callbacks";

int end_life(lua_State* L) {
  auto* holder = static_cast<std::shared_ptr<CallbackLife>*>(lua_touserdata(L, 1));
  (*holder)->thread = nullptr;
  holder->~shared_ptr<CallbackLife>();
  return 0;
}

void push_layer(lua_State* L, const models::ParamLayer& layer) {
  std::vector<int64_t> shape(layer.weight->value.sizes().begin(),
                             layer.weight->value.sizes().end());
  push_json(L, Json{{"name", layer.name},
                    {"kind", layer.kind},
                    {"weight_shape", shape},
                    {"has_bias", layer.bias != nullptr},
                    {"trains_weight", layer.weight->trainable},
                    {"trains_bias", layer.bias != nullptr && layer.bias->trainable},
                    {"padding_id", layer.padding_id}});
}

std::shared_ptr<CallbackLife> life_of(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, kLifeKey);
  if (void* known = lua_touserdata(L, -1)) {
    lua_pop(L, 1);
    return *static_cast<std::shared_ptr<CallbackLife>*>(known);
  }
  lua_pop(L, 1);
  auto life = std::make_shared<CallbackLife>();
  life->thread = lua_newthread(L);
  lua_setfield(L, LUA_REGISTRYINDEX, "moonshard.callback_thread");
  new (lua_newuserdata(L, sizeof(std::shared_ptr<CallbackLife>)))
      std::shared_ptr<CallbackLife>(life);
  lua_newtable(L);
  lua_pushcfunction(L, &end_life);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_setfield(L, LUA_REGISTRYINDEX, kLifeKey);
  return life;
}

}  // namespace

LuaCallback::LuaCallback(lua_State* L, std::string name) : name_(std::move(name)) {
  reference_ =
      luaL_ref(L, LUA_REGISTRYINDEX);  // for the state's life, like the registration itself
  life_ = life_of(L);
}

at::Tensor LuaCallback::operator()(const models::ParamLayer& layer,
                                   const std::vector<at::Tensor>& tensors) const {
  lua_State* L = life_->thread;
  MS_CHECK(L != nullptr, "{}: the Lua state that registered it is closed; register it again",
           name_);
  const int top = lua_gettop(L);
  MS_CHECK(lua_checkstack(L, 16) != 0, "{}: no room left on the Lua stack", name_);
  lua_rawgeti(L, LUA_REGISTRYINDEX, reference_);
  push_layer(L, layer);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) {
      sol::stack::push(L, push_tensor(L, tensor));
    } else {
      lua_pushnil(L);
    }
  }
  const int status = lua_pcall(L, static_cast<int>(tensors.size()) + 1, 1, 0);
  const auto fail = [&](const std::string& text) {
    lua_settop(L, top);
    throw UsageError(fmt::format("{}: layer '{}': {}", name_, layer.name, text));
  };
  if (status != 0) {
    const char* text = lua_tostring(L, -1);
    fail(text != nullptr ? text : "raised a value that is no text");
  }
  if (!lua_isuserdata(L, -1) || !sol::stack::check<TensorHandle>(L, -1, sol::no_panic))
    fail(fmt::format("expected a Tensor as result, got a {}", luaL_typename(L, -1)));
  const TensorHandle& handle = sol::stack::get<TensorHandle&>(L, -1);
  if (handle.is_freed()) fail("expected a Tensor as result, got one that was freed");
  const at::Tensor result = handle.get(name_.c_str());
  lua_settop(L, top);
  return result;
}

}  // namespace moonshard::bindings
