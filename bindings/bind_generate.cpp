// What Model:generate and Trainer:generate, which are Lua, are made of: native.generation.
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/handles.h"
#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/generate/generate.h"

namespace moonshard::bindings {
namespace {

using generate::Tokens;

// The list of whole numbers at the top of the stack.
Tokens read_ids(lua_State* L, const std::string& where) {
  MS_CHECK(lua_type(L, -1) == LUA_TTABLE, "{}: expected a list of token ids, got {}", where,
           describe_value(L, lua_gettop(L)));
  const size_t count = lua_objlen(L, -1);
  Tokens ids;
  ids.reserve(count);
  for (size_t i = 1; i <= count; ++i) {
    lua_rawgeti(L, -1, static_cast<int>(i));
    const auto id = exact_integer(L, lua_gettop(L));
    MS_CHECK(id.has_value(), "{}: token {}: expected a whole number, got {}", where, i,
             describe_value(L, lua_gettop(L)));
    ids.push_back(*id);
    lua_pop(L, 1);
  }
  return ids;
}

std::vector<Tokens> read_prompts(const Arguments& args, int n) {
  args.table(n, "of lists of token ids");
  lua_State* L = args.state();
  std::vector<Tokens> prompts;
  for (size_t i = 1; i <= lua_objlen(L, n); ++i) {
    lua_rawgeti(L, n, static_cast<int>(i));
    prompts.push_back(read_ids(L, fmt::format("{}: prompt {}", args.function_name(), i)));
    lua_pop(L, 1);
  }
  return prompts;
}

// Calls the function at a place of the stack with (prompt, token), from 1 on. It runs on the thread
// that called us, in the middle of the bound function.
generate::OnToken callback_of(const Arguments& args, int n) {
  if (args.missing(n)) return {};
  args.function(n, "on_token");
  lua_State* L = args.state();
  return [L, n](size_t prompt, int64_t token) {
    lua_pushvalue(L, n);
    lua_pushnumber(L, static_cast<double>(prompt + 1));
    lua_pushnumber(L, static_cast<double>(token));
    if (lua_pcall(L, 2, 0, 0) == 0) return;
    const char* text = lua_tostring(L, -1);
    const std::string said = text != nullptr ? text : "raised a value that is no text";
    lua_pop(L, 1);
    throw_if_interrupted();
    throw UsageError(fmt::format("generate: on_token: {}", said));
  };
}

sol::object generate_tokens(const Arguments& args) {
  const std::vector<Tokens> prompts = read_prompts(args, 2);
  Json plain = args.options(3);
  generate::GenerateOptions options;
  if (plain.contains("stop")) {
    if (plain["stop"].is_array()) options.stop = plain["stop"].get<Tokens>();
    plain.erase("stop");
  }
  generate::generate_schema().assign_all(&options, plain);
  const generate::OnToken on_token = callback_of(args, 4);
  generate::Generated made;
  if (args.is<TrainerHandle>(1)) {
    const TrainerHandle& handle = args.object<TrainerHandle>(1, "Trainer");
    MS_CHECK(handle.trainer != nullptr, "{}: expected a trainer, got one that was closed",
             args.function_name());
    made = generate::generate(*handle.trainer, prompts, options, on_token);
  } else {
    made = generate::generate(*args.self<ModelHandle>("Model").model, prompts, options, on_token);
  }
  return to_lua(args.state(), {{"ids", made.tokens},
                               {"ended", made.ended},
                               {"prompt_tokens", made.prompt_tokens},
                               {"new_tokens", made.new_tokens},
                               {"prefill_seconds", made.prefill_seconds},
                               {"decode_seconds", made.decode_seconds},
                               {"cache_bytes", made.cache_bytes},
                               {"graph", made.graph}});
}

}  // namespace

void bind_generate(sol::table native) {
  sol::table table(native.lua_state(), sol::create);
  for (const char* name : {"Model:generate", "Trainer:generate"})
    document_options<generate::GenerateOptions>(name, generate::generate_schema());
  table["run"] = make_function(native.lua_state(), "generate", generate_tokens);
  native["generation"] = table;
}

}  // namespace moonshard::bindings
