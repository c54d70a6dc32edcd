// The doc store: one signature and one text per public function or table. help(), ?x, completion
// and the generated reference read the same lines.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/convert.h"
#include "bindings/lua_error.h"
#include "bindings/native_memory.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"

namespace moonshard::bindings {

/// Limits the nesting of bound functions that call back into Lua. Each level uses C stack, which
/// Lua does not check.
class CallDepth {
 public:
  explicit CallDepth(const char* function) {
    MS_CHECK(depth_ < kMaxDepth, "{}: expected at most {} calls inside one another, got more",
             function, kMaxDepth);
    ++depth_;
  }
  ~CallDepth() { --depth_; }
  CallDepth(const CallDepth&) = delete;
  CallDepth& operator=(const CallDepth&) = delete;

 private:
  static constexpr int kMaxDepth = 100;
  static inline thread_local int depth_ = 0;
};

/// Stores the documentation of a Lua value (function, table or userdata) for as long as it lives.
/// What has no value of its own (a field, a version) is documented by its name, a text.
void document(const sol::object& value, const std::string& name, const std::string& signature,
              const std::string& text);

/// Binds a function under a name and documents it: define(ms, "ms", "zeros", "(sizes, options) ->
/// Tensor", "A tensor of zeros.", fn), where fn takes (const Arguments&) and returns Json,
/// anything that sol2 pushes, or nothing.
template <class F>
void define(sol::table target, const std::string& owner, const char* name, const char* signature,
            const char* text, F function);

/// A Lua function of fn; its errors are prefixed with the name, which must live as long as the
/// program.
template <class F>
sol::object make_function(lua_State* L, const char* name, F function);

/// Says which options a function takes, by its name: "ms.clip". T's member initialisers are the
/// defaults; the schema lives as long as the program. Without `left_out`, which the function sets
/// itself.
template <class T>
void document_options(const char* name, const OptionSchema& schema,
                      const std::vector<std::string>& left_out = {});
void document_options(const char* name, const OptionSchema& schema, const Json& defaults,
                      const std::vector<std::string>& left_out);

/// A copy of a name for error messages, e.g. "ms.zeros", that lives as long as the program.
const char* keep_name(const std::string& name);

/// ms.doc_of and ms.document; native.docs, from which reference, help and completion are made.
void bind_docs(sol::table ms, sol::table native);

template <class T>
void document_options(const char* name, const OptionSchema& schema,
                      const std::vector<std::string>& left_out) {
  const T defaults;
  document_options(name, schema, schema.to_json(&defaults), left_out);
}

template <class T>
void push_result(lua_State* L, T&& value) {
  if constexpr (std::is_same_v<T, Json>) {
    push_json(L, value);
  } else {
    sol::stack::push(L, std::forward<T>(value));
  }
}

// The C function behind every bound function. Catches all exceptions and raises the Lua error after
// the last C++ object is destroyed. sol2's own trampolines find their handler among the script's
// globals, where it can be cleared; this does not depend on globals.
template <class F>
int call_bound(lua_State* L) {
  const auto& function = *static_cast<const F*>(lua_touserdata(L, lua_upvalueindex(1)));
  const auto* name = static_cast<const char*>(lua_touserdata(L, lua_upvalueindex(2)));
  int results = -1;
  try {
    const CallDepth depth(name);
    const CollectableCall collectable(L);
    const Arguments args(L, name);
    if constexpr (std::is_void_v<decltype(function(args))>) {
      function(args);
      results = 0;
    } else {
      push_result(L, function(args));
      results = 1;
    }
  } catch (const Json::exception& error) {
    // A table of the wrong structure; the JSON library's message names the types.
    push_error_text(L, UsageError(fmt::format("{}: expected another shape of table: {}", name,
                                              std::strchr(error.what(), ']') + 2)));
  } catch (const std::exception& error) {
    push_error_text(L, error);
  }
  collect_if_grown(L);
  return results < 0 ? lua_error(L) : results;
}

template <class F>
sol::object make_function(lua_State* L, const char* name, F function) {
  static_assert(std::is_trivially_copyable_v<F> && std::is_trivially_destructible_v<F>,
                "lives in plain Lua memory; capture nothing that needs a destructor");
  new (lua_newuserdata(L, sizeof(F))) F(function);
  lua_pushlightuserdata(L, const_cast<char*>(name));
  lua_pushcclosure(L, &call_bound<F>, 2);
  return sol::stack::pop<sol::object>(L);
}

template <class F>
void define(sol::table target, const std::string& owner, const char* name, const char* signature,
            const char* text, F function) {
  const char* full = keep_name(owner + (owner.find(':') == std::string::npos ? "." : "") + name);
  target[name] = make_function(target.lua_state(), full, function);
  document(target[name], full, std::string(full) + signature, text);
}

}  // namespace moonshard::bindings
