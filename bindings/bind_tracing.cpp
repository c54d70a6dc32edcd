// native.tracing: what traces say, for the Lua library (moonshard.trace).
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "runtime/tracing/trace_files.h"
#include "runtime/tracing/trace_tables.h"

namespace moonshard::bindings {

void bind_tracing(sol::table native) {
  sol::table table(native.lua_state(), sol::create);
  native["tracing"] = table;
  define(table, "tracing", "find", "(path, rank) -> list of files",
         "The traces of a rank that a path means (tracing/trace_files.h).",
         [](const Arguments& args) {
           return Json(tracing::traces_at(args.path(1, "path"), args.integer(2, "rank")));
         });
  define(table, "tracing", "path", "(file, options) -> table",
         "The critical path of a step (tracing/trace_tables.h).", [](const Arguments& args) {
           return tracing::path_table(args.path(1, "file"), args.options(2));
         });
  define(table, "tracing", "what_if", "(file, options) -> table",
         "What a step would take with other lengths.", [](const Arguments& args) {
           return tracing::what_if_table(args.path(1, "file"), args.options(2));
         });
  define(table, "tracing", "diff", "(before, after) -> table", "What differs between two traces.",
         [](const Arguments& args) {
           return tracing::diff_table(args.path(1, "before"), args.path(2, "after"));
         });
}

}  // namespace moonshard::bindings
