// The subjects of the Lua module, one file each. Order matters only in that docs come first.
#pragma once

#include "bindings/sol.h"

namespace moonshard::bindings {

void bind_tensor(sol::table ms);                    // ms.zeros, ms.tensor, ms.scope, Tensor
void bind_model(sol::table ms, sol::table native);  // ms.model, ms.models, Model
void bind_generate(sol::table native);              // text from models, for the Lua library
void bind_weights(sol::table ms);                   // ms.weights, ms.load
void bind_privacy(sol::table ms);  // ms.engines, ms.register_engine, ms.register_rule, ms.verify
void bind_audit(sol::table ms);    // ms.audit
void bind_budget(sol::table ms);   // ms.privacy
void bind_train(sol::table ms, sol::table native);  // ms.trainer, ms.clip, ms.optim, Trainer
void bind_loader(sol::table ms);                    // ms.data.synthetic, ms.data.loader, Data
void bind_tokenizer(sol::table ms);                 // ms.tokenizer
void bind_data(sol::table ms);                      // ms.data.text, ms.data.classification
void bind_dist(sol::table ms);                      // ms.dist, ms.fsdp, ms.ddp
void bind_experiment(sol::table ms,
                     sol::table native);  // ms.run, ms.resolve, ms.options
void bind_plan(sol::table native);        // predictions, for the Lua library
void bind_tracing(sol::table native);     // what traces say, for the Lua library
void bind_records(sol::table native);     // run folders, for the Lua library
void bind_analysis(sol::table native);    // analysis of results, for the Lua library
void bind_export(sol::table native);      // file formats of other programs, for the Lua library
void bind_processes(sol::table launch);   // processes, locks and interrupts, for the Lua library
void bind_launch(sol::table ms,
                 sol::table native);  // ms.memory, ms.machine; processes for the Lua library

/// Lets require find moonshard.*, the Lua library, and nothing else; once per state. package.path
/// stays the host's.
void add_library_searcher(lua_State* L);

/// Registry key of the flag set by launch.note_failed_points: a sweep of this state has points that
/// failed.
inline constexpr const char* kFailedPointsNote = "moonshard.failed_points";
/// The same for a result file that could not be written (launch.note_unwritten).
inline constexpr const char* kUnwrittenNote = "moonshard.unwritten";
/// The same for a script that has registered an engine or a rule.
inline constexpr const char* kOwnPartsNote = "moonshard.own_parts";

/// Opens the module in a state and pushes its table; what luaopen_moonshard does.
int open_module(lua_State* L);

}  // namespace moonshard::bindings
