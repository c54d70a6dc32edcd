#include "bindings/docs.h"

#include <algorithm>
#include <map>
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

// The options of one function.
struct OptionSource {
  const OptionSchema* schema = nullptr;
  Json defaults;
  std::vector<std::string> left_out;
};

// Of all states of the process, as keep_name's names: schemas are the same in each.
std::mutex option_sources_mutex;
std::map<std::string, OptionSource>& option_sources() {
  static std::map<std::string, OptionSource> sources;
  return sources;
}

const char* kind_name(OptionType type) {
  switch (type) {
    case OptionType::Integer:
      return "integer";
    case OptionType::Real:
      return "number";
    case OptionType::Boolean:
      return "boolean";
    case OptionType::Text:
      return "text";
    case OptionType::TextList:
      return "texts";
    case OptionType::Choice:
      return "choice";
  }
  return "text";
}

// Asked each time: the words of a choice grow when a script registers an engine.
Json described_options(const OptionSource& source) {
  Json list = Json::array();
  for (const Option& option : source.schema->options()) {
    if (std::ranges::count(source.left_out, option.name) > 0) continue;
    Json entry{{"name", option.name},           {"kind", kind_name(option.type)},
               {"type", describe_type(option)}, {"default", source.defaults.at(option.name)},
               {"aliases", option.aliases},     {"doc", option.doc}};
    if (option.type == OptionType::Choice) entry["choices"] = option.words();
    if (option.type == OptionType::Integer || option.type == OptionType::Real) {
      entry["min"] = option.min;
      entry["max"] = option.max;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

sol::object documented_options(const Arguments& args) {
  const std::string name = args.text(1, "name");
  const std::lock_guard lock(option_sources_mutex);
  const auto found = option_sources().find(name);
  if (found == option_sources().end()) return sol::make_object(args.state(), sol::lua_nil);
  return to_lua(args.state(), described_options(found->second));
}

// Every entry of the store, by name. A value under two names (ms.analyze.compare) has one entry.
sol::object documented_entries(const Arguments& args) {
  std::vector<std::pair<std::string, sol::object>> entries;
  const sol::table store = doc_store(args.state());
  for (const auto& [value, entry] : store) {
    entries.emplace_back(entry.as<sol::table>().get<std::string>("name"), entry);
  }
  std::ranges::sort(entries, {}, [](const auto& entry) { return entry.first; });
  sol::table list(args.state(), sol::create);
  int count = 0;
  for (const auto& [name, entry] : entries) list.raw_set(++count, entry);
  return list;
}

}  // namespace

void document_options(const char* name, const OptionSchema& schema, const Json& defaults,
                      const std::vector<std::string>& left_out) {
  const std::lock_guard lock(option_sources_mutex);
  option_sources()[name] = {&schema, defaults, left_out};
}

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

void bind_docs(sol::table ms, sol::table native) {
  define(ms, "ms", "doc_of", "(value) -> { name, signature, text } or nil",
         "Documentation of a function or table of this module.",
         [](const Arguments& args) -> sol::object {
           if (args.missing(1)) return sol::make_object(args.state(), sol::lua_nil);
           return doc_store(args.state())[args.value(1)];
         });
  define(
      ms, "ms", "document", "(value, name, signature, text)",
      "Documents a function or table of your own, so that help() knows it; a text documents what "
      "it names.",
      [](const Arguments& args) {
        const sol::object value = args.value(1);
        const sol::type type = value.get_type();
        if (type != sol::type::function && type != sol::type::table &&
            type != sol::type::userdata && type != sol::type::string)
          args.fail(1, "a function, a table or a name");
        document(value, args.text(2, "name"), args.text(3, "signature"), args.text(4, "text"));
      });
  sol::table docs(native.lua_state(), sol::create);
  define(docs, "docs", "entries", "() -> list of { name, signature, text }",
         "All that is documented, sorted by name.", &documented_entries);
  define(docs, "docs", "options",
         "(name) -> list of { name, kind, type, default, choices, doc, … }",
         "The options of a function; nil for one without descriptors.", &documented_options);
  native["docs"] = docs;
}

}  // namespace moonshard::bindings
