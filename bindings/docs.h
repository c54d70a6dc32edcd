// The doc store: one signature and one text per public function or table. help(), ?x, completion
// and the generated reference read the same lines.
#pragma once

#include <string>

#include "bindings/arguments.h"

namespace moonshard::bindings {

/// Remembers the documentation of a Lua value (function, table or userdata) for as long as it
/// lives.
void document(const sol::object& value, const std::string& name, const std::string& signature,
              const std::string& text);

/// Binds a function under a name and documents it: define(ms, "ms", "zeros", "(sizes, options) ->
/// Tensor", "A tensor of zeros.", fn), where fn takes (const Arguments&) and returns a sol::object
/// or void.
template <class F>
void define(sol::table target, const std::string& owner, const char* name, const char* signature,
            const char* text, F function);

/// The name errors give: "ms.zeros". Kept for the life of the program.
const char* keep_name(const std::string& name);

/// ms.doc_of and ms.document.
void bind_docs(sol::table ms);

template <class F>
void define(sol::table target, const std::string& owner, const char* name, const char* signature,
            const char* text, F function) {
  const char* full = keep_name(owner + (owner.find(':') == std::string::npos ? "." : "") + name);
  target.set_function(
      name, [full, function](sol::variadic_args args) { return function(Arguments(args, full)); });
  document(target[name], full, std::string(full) + signature, text);
}

}  // namespace moonshard::bindings
