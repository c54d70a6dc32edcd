#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/trainer_methods.h"
#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/durable.h"

namespace moonshard::bindings {
namespace {

void print_warning(const std::string& text) {
  fmt::print(stderr, "moonshard: warning: {}\n", text);
}

// The last save of a script may fail after its last line.
void end_saver(checkpoint::Saver* saver) {
  for (const checkpoint::SaveOutcome& outcome : saver->finish())
    if (!outcome.error.empty()) print_warning(checkpoint::failed_save(outcome.step, outcome.error));
  delete saver;
}

checkpoint::Saver& saver_of(const Arguments& args) {
  train::Trainer& trainer = open_trainer(args);
  TrainerHandle& handle = args.self<TrainerHandle>("Trainer");
  if (handle.saver == nullptr) handle.saver.reset(new checkpoint::Saver(trainer), &end_saver);
  return *handle.saver;
}

template <class T>
void add_save_options(OptionSchema& s) {
  s.boolean<T>("wait", &T::wait,
               "until it is on the disk; else the next steps go on while it is written");
  s.integer<T>("keep", &T::keep, 0, 1e6, "how many of the newest stay; 0: all");
  s.integer<T>("keep_every", &T::keep_every, 0, 1e12,
               "those of steps that it divides stay as well; 0: none");
  s.boolean<T>("whole", &T::whole,
               "with the frozen weights of a LoRA run, too; else their folder and its fingerprint "
               "are noted, where they came from one");
}

const OptionSchema& save_schema() {
  static const OptionSchema schema("Trainer:save", &add_save_options<checkpoint::SaveOptions>);
  return schema;
}

const OptionSchema& durable_schema() {
  static const OptionSchema schema("Trainer:durable", [](OptionSchema& s) {
    using T = checkpoint::DurableOptions;
    s.integer<T>("every", &T::every, 1, 1e12, "steps from one save to the next");
    add_save_options<T>(s);
  });
  return schema;
}

sol::object save_checkpoint(const Arguments& args) {
  checkpoint::SaveOptions options;
  save_schema().assign_all(&options, args.options(3));
  return sol::make_object(args.state(),
                          saver_of(args).save(args.path(2, "folder"), options).string());
}

sol::object finish_save(const Arguments& args) {
  const std::vector<checkpoint::SaveOutcome> outcomes = saver_of(args).finish();
  if (outcomes.empty()) return sol::make_object(args.state(), sol::lua_nil);
  const checkpoint::SaveOutcome& last = outcomes.back();
  std::vector<std::string> errors;
  for (const checkpoint::SaveOutcome& outcome : outcomes)
    if (!outcome.error.empty())
      errors.push_back(checkpoint::failed_save(outcome.step, outcome.error));
  Json result{{"path", last.path.string()},
              {"step", last.step},
              {"waited_s", last.waited_s},
              {"written_s", last.written_s}};
  if (!errors.empty()) result["error"] = fmt::format("{}", fmt::join(errors, "; "));
  return to_lua(args.state(), result);
}

sol::object make_durable(const Arguments& args) {
  checkpoint::DurableOptions options;
  durable_schema().assign_all(&options, args.options(3));
  const std::string folder = args.path(2, "folder");
  checkpoint::Saver& saver = saver_of(args);
  TrainerHandle& handle = args.self<TrainerHandle>("Trainer");
  handle.durable.reset();
  handle.durable_folder = folder;
  handle.durable =
      std::make_shared<checkpoint::DurableRun>(*handle.trainer, saver, folder, options);
  print_warnings(*handle.durable);
  const auto step = handle.durable->resumed_step();
  if (!step) return sol::make_object(args.state(), sol::lua_nil);
  return sol::make_object(args.state(), static_cast<double>(*step));
}

const OptionSchema& resume_schema() {
  static const OptionSchema schema("Trainer:resume", [](OptionSchema& s) {
    using T = checkpoint::ResumeOptions;
    s.boolean<T>("if_any", &T::if_any, "return nil when there is no checkpoint");
    s.boolean<T>("other_seed", &T::other_seed,
                 "go on with this model's seed: other noise, other data");
  });
  return schema;
}

sol::object resume_checkpoint(const Arguments& args) {
  train::Trainer& trainer = open_trainer(args);
  checkpoint::ResumeOptions options;
  resume_schema().assign_all(&options, args.options(3));
  const auto step = checkpoint::resume(trainer, args.path(2, "folder"), options);
  if (!step) return sol::make_object(args.state(), sol::lua_nil);
  return sol::make_object(args.state(), static_cast<double>(*step));
}

}  // namespace

train::Trainer& open_trainer(const Arguments& args) {
  const TrainerHandle& handle = args.self<TrainerHandle>("Trainer");
  MS_CHECK(handle.trainer != nullptr, "{}: expected a trainer, got one that was closed",
           args.function_name());
  return *handle.trainer;
}

void print_warnings(checkpoint::DurableRun& run) {
  for (const std::string& warning : run.take_warnings()) print_warning(warning);
}

void add_checkpoint_methods(ObjectType<TrainerHandle>& trainer) {
  trainer.method("save", "(folder[, { wait, keep, keep_every, whole }]) -> path",
                 "Writes a checkpoint of all that the next step depends on; it is there as a whole "
                 "or not at all. All ranks together.",
                 &save_checkpoint);
  trainer.method("finish_save", "() -> { path, step, waited_s, written_s, error } or nil",
                 "Waits for a save with wait = false, and says what became of it; `error` has the "
                 "failures of earlier ones as well.",
                 &finish_save);
  trainer.method("durable", "(folder[, { every, wait, keep, keep_every, whole }]) -> step",
                 "Goes on from the newest whole checkpoint of the folder, if there is one; from "
                 "then on step() saves by itself, and saves and ends the run on SIGTERM. All ranks "
                 "together.",
                 &make_durable);
  trainer.method(
      "resume", "(folder[, { if_any, other_seed }]) -> step",
      "Goes on from a checkpoint, or from the newest in a folder: of any number of ranks "
      "and any sharding. All ranks together.",
      &resume_checkpoint);
  document_options<checkpoint::ResumeOptions>("Trainer:resume", resume_schema());
  document_options<checkpoint::SaveOptions>("Trainer:save", save_schema());
  document_options<checkpoint::DurableOptions>("Trainer:durable", durable_schema());
}

}  // namespace moonshard::bindings
