#include "bindings/docs.h"

#include <mutex>
#include <set>

namespace moonshard::bindings {
namespace {

constexpr const char* kStoreName = "moonshard.docs";

// A registry table with weak keys: documentation does not keep anything alive.
sol::table doc_store(lua_State* L) {
  sol::table registry = sol::state_view(L).registry();
  sol::object found = registry[kStoreName];
  if (found.is<sol::table>()) return found;
  sol::table store(L, sol::create);
  store[sol::metatable_key] = sol::state_view(L).create_table_with("__mode", "k");
  registry[kStoreName] = store;
  return store;
}

}  // namespace

const char* keep_name(const std::string& name) {
  // Of all states of the process: a host may open the module in several threads at once.
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

void document(const sol::object& value, const std::string& name, const std::string& signature,
              const std::string& text) {
  lua_State* L = value.lua_state();
  doc_store(L)[value] =
      sol::state_view(L).create_table_with("name", name, "signature", signature, "text", text);
}

void bind_docs(sol::table ms) {
  define(ms, "ms", "doc_of", "(value) -> { name, signature, text } or nil",
         "Documentation of a function or table of this module.",
         [](const Arguments& args) -> sol::object {
           if (args.missing(1)) return sol::make_object(args.state(), sol::lua_nil);
           return doc_store(args.state())[args.value(1)];
         });
  define(
      ms, "ms", "document", "(value, name, signature, text)",
      "Documents a function or table of your own, so that help() knows it.",
      [](const Arguments& args) {
        const sol::object value = args.value(1);
        const sol::type type = value.get_type();
        if (type != sol::type::function && type != sol::type::table && type != sol::type::userdata)
          args.fail(1, "a function or a table");
        document(value, args.text(2, "name"), args.text(3, "signature"), args.text(4, "text"));
      });
}

}  // namespace moonshard::bindings
