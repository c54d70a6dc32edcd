// Methods of a Trainer that are bound in a file of their own.
#pragma once

#include "bindings/arguments.h"
#include "bindings/handles.h"
#include "bindings/usertype.h"

namespace moonshard::bindings {

/// Argument 1 of a method. Throws UsageError when it was closed.
train::Trainer& open_trainer(const Arguments& args);

/// native.training: what Trainer:fit and ms.evaluate, which are Lua, are made of.
void bind_training(sol::table native);

/// save, finish_save, durable and resume.
void add_checkpoint_methods(ObjectType<TrainerHandle>& trainer);
/// To stderr, once: checkpoints that were passed over, saves that failed.
void print_warnings(checkpoint::DurableRun& run);

}  // namespace moonshard::bindings
