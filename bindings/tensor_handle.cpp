#include "bindings/tensor_handle.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "bindings/docs.h"
#include "bindings/lua_error.h"
#include "runtime/base/check.h"

namespace moonshard::bindings {
namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> made_since_collection{0};
std::atomic<int64_t> alive_at_collection{0};
constexpr int64_t kLeastPressure = 64 << 20;

using Scope = std::vector<std::weak_ptr<TensorHandle::Box>>;
// One Lua state runs on one thread; states of other threads have scopes of their own.
thread_local std::vector<Scope*> open_scopes;

void collect_under_pressure(lua_State* L, int64_t bytes) {
  const int64_t made = made_since_collection.fetch_add(bytes) + bytes;
  if (made < std::max(kLeastPressure, alive_at_collection.load())) return;
  made_since_collection = 0;
  lua_gc(L, LUA_GCCOLLECT, 0);
  alive_at_collection = live_bytes.load();
}

constexpr int kMaxReturnedDepth = 1000;

// Boxes of all tensors in the value at a stack position, looking into tables, each table once.
void collect_boxes(lua_State* L, int index, std::set<const TensorHandle::Box*>& boxes,
                   std::set<const void*>& seen, int depth) {
  if (lua_isuserdata(L, index) && sol::stack::check<TensorHandle>(L, index, sol::no_panic)) {
    boxes.insert(sol::stack::get<TensorHandle&>(L, index).box().get());
  }
  if (!lua_istable(L, index) || !seen.insert(lua_topointer(L, index)).second) return;
  MS_CHECK(depth < kMaxReturnedDepth && lua_checkstack(L, 4) != 0,
           "ms.scope: expected returned tables at most {} deep, got deeper ones",
           kMaxReturnedDepth);
  lua_pushnil(L);
  while (lua_next(L, index) != 0) {
    collect_boxes(L, lua_gettop(L), boxes, seen, depth + 1);
    lua_pop(L, 1);
  }
}

void free_box(TensorHandle::Box& box) {
  live_bytes -= box.bytes;
  box.bytes = 0;
  box.tensor = at::Tensor();
}

// Ends a scope whose function left its results (or its error) above `base` on the stack.
void close_scope(lua_State* L, const Scope& scope, int base) {
  std::set<const TensorHandle::Box*> returned;
  std::set<const void*> seen;
  const int top = lua_gettop(L);
  std::string problem;
  try {
    for (int i = base + 1; i <= top; ++i) collect_boxes(L, i, returned, seen, 0);
  } catch (const UsageError& error) {
    problem = error.what();
    lua_settop(L, top);
  }
  for (const auto& weak : scope) {
    const auto box = weak.lock();
    if (box == nullptr) continue;
    if (returned.count(box.get()) == 0) {
      free_box(*box);
    } else if (!open_scopes.empty()) {
      open_scopes.back()->push_back(box);  // now the outer scope's
    }
  }
  if (!problem.empty()) throw UsageError(problem);
}

}  // namespace

TensorHandle::TensorHandle(at::Tensor tensor) : box_(std::make_shared<Box>()) {
  box_->bytes = tensor.is_meta() ? 0 : static_cast<int64_t>(tensor.nbytes());
  box_->tensor = std::move(tensor);
  live_bytes += box_->bytes;
  if (!open_scopes.empty()) open_scopes.back()->push_back(box_);
}

TensorHandle::Box::~Box() {
  live_bytes -= bytes;
}

void TensorHandle::free() {
  free_box(*box_);
}

const at::Tensor& TensorHandle::get(const char* function) const {
  MS_CHECK(!is_freed(),
           "{}: expected a tensor, got one that was freed; keep it out of free() and ms.scope",
           function);
  return box_->tensor;
}

sol::object push_tensor(lua_State* L, const at::Tensor& tensor) {
  collect_under_pressure(L, static_cast<int64_t>(tensor.nbytes()));
  return sol::make_object(L, TensorHandle(tensor));
}

int64_t live_tensor_bytes() {
  return live_bytes;
}

int call_in_scope(lua_State* L) {
  // Plain Lua calls: the function's own error value passes through as it is, and all its results.
  int status = LUA_ERRRUN;
  try {
    MS_CHECK(lua_isfunction(L, 1), "ms.scope: argument 1: expected a function (to call), got {}",
             luaL_typename(L, 1));
    lua_settop(L, 1);
    const CallDepth depth("ms.scope");
    Scope scope;
    open_scopes.push_back(&scope);
    status = lua_pcall(L, 0, LUA_MULTRET, 0);
    open_scopes.pop_back();
    close_scope(L, scope, 0);
  } catch (const std::exception& error) {
    status = LUA_ERRRUN;
    push_error_text(L, error);
  }
  if (status != 0) return lua_error(L);
  return lua_gettop(L);
}

}  // namespace moonshard::bindings
