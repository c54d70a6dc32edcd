#include "bindings/tensor_handle.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "runtime/core/check.h"

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

// Boxes of all tensors in a value, looking into tables.
void collect_boxes(const sol::object& value, std::set<const TensorHandle::Box*>& boxes, int depth) {
  if (value.is<TensorHandle>()) {
    boxes.insert(value.as<TensorHandle&>().box().get());
  } else if (value.get_type() == sol::type::table && depth < 8) {
    for (const auto& [key, item] : value.as<sol::table>()) collect_boxes(item, boxes, depth + 1);
  }
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
  box_->tensor = at::Tensor();
  live_bytes -= box_->bytes;
  box_->bytes = 0;
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

sol::object run_in_scope(lua_State* L, const sol::protected_function& function) {
  Scope scope;
  open_scopes.push_back(&scope);
  const sol::protected_function_result result = function();
  open_scopes.pop_back();
  std::set<const TensorHandle::Box*> returned;
  sol::object value = sol::make_object(L, sol::lua_nil);
  if (result.valid() && result.return_count() > 0) {
    value = result.get<sol::object>();
    collect_boxes(value, returned, 0);
  }
  for (const auto& weak : scope) {
    const auto box = weak.lock();
    if (box == nullptr) continue;
    if (returned.count(box.get()) > 0) {
      if (!open_scopes.empty()) open_scopes.back()->push_back(box);  // now the outer scope's
    } else {
      live_bytes -= box->bytes;
      box->bytes = 0;
      box->tensor = at::Tensor();
    }
  }
  if (!result.valid()) throw Error(result.get<sol::error>().what());
  return value;
}

}  // namespace moonshard::bindings
