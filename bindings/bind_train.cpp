// Training piece by piece for Lua: ms.trainer and what it is put together from.
#include <ATen/ATen.h>

#include <optional>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/handles.h"
#include "bindings/trainer_methods.h"
#include "bindings/usertype.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/experiment/measurement.h"
#include "runtime/models/registry.h"
#include "runtime/plan/trainer_check.h"
#include "runtime/privacy/clip_groups.h"
#include "runtime/records/schema_json.h"

namespace moonshard::bindings {
namespace {

const OptionSchema& clip_schema() {
  static const OptionSchema schema("clip", privacy::add_clip_options<privacy::ClipOptions>);
  return schema;
}

const OptionSchema& optimizer_schema() {
  static const OptionSchema schema("optim", optim::add_optimizer_options<optim::OptimizerOptions>);
  return schema;
}

// groups = { { match = "*lora_A*", max_grad_norm = 0.5 }, … } as the options that it stands for.
Json with_group_options(const Arguments& args, int n) {
  Json options = args.options(n);
  const auto found = options.find("groups");
  if (found == options.end()) return options;
  constexpr const char* kForm = "{ { match = globs, max_grad_norm = bound }, … }";
  const Json list = *found;
  MS_CHECK(list.is_array(), "{}: option 'groups': expected {}, got {}", args.function_name(), kForm,
           one_line(list).substr(0, 100));
  std::vector<privacy::ClipGroup> groups;
  for (const Json& entry : list) {
    const bool has_both = entry.is_object() && entry.size() == 2 && entry.contains("match") &&
                          entry.contains("max_grad_norm") && entry["max_grad_norm"].is_number();
    MS_CHECK(has_both, "{}: option 'groups': expected {}, got {}", args.function_name(), kForm,
             one_line(entry).substr(0, 100));
    const Json& match = entry["match"];
    MS_CHECK(match.is_string() || match.is_array(),
             "{}: option 'groups': expected globs, a text or a list of them, got match = {}",
             args.function_name(), one_line(match).substr(0, 100));
    groups.push_back({match.is_array() ? match.get<std::vector<std::string>>()
                                       : std::vector<std::string>{match.get<std::string>()},
                      entry["max_grad_norm"].get<double>()});
  }
  options.erase("groups");
  options["clip_groups"] = privacy::clip_groups_text(groups);
  if (!options.contains("clipping")) options["clipping"] = "groups";
  privacy::parse_clip_groups(options["clip_groups"].get<std::string>());
  return options;
}

// ms.clip and ms.optim.* check their options now and hand them on as a plain table, which prints
// well and can be copied; ms.trainer reads it back through the same schema.
sol::object checked_clip(const Arguments& args) {
  privacy::ClipOptions options;
  Json table = with_group_options(args, 2);
  table["mode"] = args.text(1, "engine");
  clip_schema().assign_all(&options, table);
  return to_lua(args.state(), clip_schema().to_json(&options));
}

template <int N>
sol::object checked_optimizer(const Arguments& args, const char (&name)[N]) {
  optim::OptimizerOptions options;
  Json table = args.options(1);
  MS_CHECK(!table.contains("optimizer"),
           "ms.optim.{}: unknown option 'optimizer'; the function's name says which", name);
  optimizer_schema().assign_all(&options, table);
  options.optimizer = name;
  return to_lua(args.state(), optimizer_schema().to_json(&options));
}

// ---- the trainer ------------------------------------------------------------------------------

Json part(const sol::table& table, const char* name) {
  const sol::object value = table.raw_get<sol::object>(name);
  if (!value.valid() || value.get_type() == sol::type::lua_nil) return Json::object();
  lua_State* L = table.lua_state();
  sol::stack::push(L, value);
  Json json = to_json(L, -1, std::string("trainer: option '") + name + "'");
  lua_pop(L, 1);
  return json;
}

const OptionSchema& privacy_schema() {
  static const OptionSchema schema("trainer: option 'privacy'", [](OptionSchema& s) {
    privacy::add_privacy_options<privacy::PrivacyOptions>(s);
    privacy::add_release_options<privacy::PrivacyOptions>(s);
  });
  return schema;
}

// What a trainer takes besides its parts.
struct TrainerOptions : train::StepOptions {
  bool check_memory = true;
  bool record_layers = false;
  bool record_timeline = false;
  bool record_details = false;
};

const OptionSchema& trainer_schema() {
  static const OptionSchema schema("trainer", [](OptionSchema& s) {
    using T = TrainerOptions;
    s.also_known({"model", "clip", "optimizer", "data", "parallel", "privacy"});
    train::add_step_options<T>(s);
    s.boolean<T>("check_memory", &T::check_memory,
                 "refuse before the start what cannot fit into memory, with advice");
    s.boolean<T>("record_layers", &T::record_layers,
                 "put each layer's norms into the step's report");
    s.boolean<T>("record_timeline", &T::record_timeline,
                 "put what happened when into the step's report");
    s.boolean<T>("record_details", &T::record_details,
                 "put memory by owner, norm times and communication into the report");
  });
  return schema;
}

TrainerOptions read_trainer_options(const Arguments& args, const sol::table& table) {
  sol::table rest(args.state(), sol::create);
  for (const auto& [key, value] : table) {
    const std::string name = key.is<std::string>() ? key.as<std::string>() : "(a number)";
    if (trainer_schema().is_also_known(name)) continue;
    if (trainer_schema().find(name) == nullptr) trainer_schema().fail_unknown(name);
    rest[key] = value;
  }
  sol::stack::push(args.state(), rest);
  const Json options = to_json(args.state(), -1, args.function_name());
  lua_pop(args.state(), 1);
  TrainerOptions read;
  trainer_schema().assign_all(&read, options);
  return read;
}

plan::BatchShape shape_of(const DataHandle& data, const models::Model& model) {
  if (data.dataset != nullptr) return plan::shape_of_samples(*data.dataset, data.loader.batch_size);
  const models::Preset& preset = models::find_preset(model.options().model);
  return {data.batch_size > 0 ? data.batch_size : preset.batch_size,
          data.seq_length > 0 ? data.seq_length : preset.seq_length};
}

sol::object make_trainer(const Arguments& args) {
  const sol::table table = args.table(1, "options");
  const TrainerOptions options = read_trainer_options(args, table);
  const sol::object model = table.raw_get<sol::object>("model");
  MS_CHECK(model.is<ModelHandle>(),
           "trainer: option 'model': expected a model, got something else; make one with ms.model");
  train::TrainerParts parts;
  parts.model = model.as<ModelHandle&>().model;
  parts.step = options;
  clip_schema().assign_all(&parts.clip, part(table, "clip"));
  optimizer_schema().assign_all(&parts.optimizer, part(table, "optimizer"));
  DataHandle data;
  const sol::object given = table.raw_get<sol::object>("data");
  if (given.valid() && given.get_type() != sol::type::lua_nil) {
    MS_CHECK(given.is<DataHandle>(),
             "trainer: option 'data': expected a data source, got something else; make one with "
             "ms.data.synthetic or ms.data.loader");
    data = given.as<DataHandle&>();
  }
  // A single process needs no wrapper; one of several ranks must not silently train alone.
  parts.sharding = read_sharding_options(part(table, "parallel"));
  parts.world = comm::make_world(parts.sharding.world, parts.sharding.link);
  privacy_schema().assign_all(&parts.privacy, part(table, "privacy"));
  MS_CHECK(parts.clip.mode != "none" || !table.raw_get<sol::object>("privacy").valid() ||
               table.raw_get<sol::object>("privacy").get_type() == sol::type::lua_nil,
           "trainer: option 'privacy': expected a private engine beside it, got clip = none, which "
           "trains without privacy; give an engine (ms.clip \"auto\"), or leave privacy out");
  parts.data =
      open_source(data, *parts.model, *parts.world, options, parts.privacy.secure, parts.clip.mode);
  const plan::BatchShape shape = shape_of(data, *parts.model);
  if (options.check_memory) plan::refuse_trainer_that_cannot_fit(parts, shape);
  TrainerHandle handle;
  handle.options =
      std::make_shared<experiment::ExperimentOptions>(plan::options_of_parts(parts, shape));
  handle.model = parts.model;
  handle.trainer = std::make_shared<train::Trainer>(std::move(parts));
  handle.trainer->record_layers(options.record_layers);
  handle.trainer->record_timeline(options.record_timeline);
  handle.trainer->record_details(options.record_details);
  return sol::make_object(args.state(), std::move(handle));
}

Json norms_by_layer(const train::StepReport& report) {
  Json list = Json::array();
  for (const privacy::LayerNorms& layer : report.layers) {
    const at::Tensor norms = layer.norms.to(at::kCPU, at::kDouble).contiguous();
    const double* first = norms.data_ptr<double>();
    list.push_back(
        {{"layer", layer.layer}, {"norms", std::vector<double>(first, first + norms.numel())}});
  }
  return list;
}

// A step; where memory runs out, the error says what was held and what would save it.
train::StepReport checked_step(const Arguments& args, train::Trainer& trainer) {
  const bool is_given = !args.missing(2);
  const Batch batch = is_given ? read_batch(args, 2, trainer.model()) : Batch();
  // A trace listens to the allocators by the same way, and for longer than a step.
  std::optional<plan::StepMemoryWatch> watch;
  if (!trainer.traces_next_step()) watch.emplace(trainer.model().seam().anchor.device());
  try {
    return is_given ? trainer.step(batch) : trainer.step();
  } catch (const OutOfMemoryError& error) {
    if (!watch) throw;
    experiment::ExperimentOptions options = *args.self<TrainerHandle>("Trainer").options;
    if (is_given) {
      const plan::BatchShape shape = plan::shape_of_batch(batch);
      options.batch_size = shape.batch_size;
      options.seq_length = shape.seq_length;
    }
    watch->rethrow(error, options, trainer.world().size());
  }
}

sol::object run_step(const Arguments& args) {
  train::Trainer& trainer = open_trainer(args);
  const std::shared_ptr<checkpoint::DurableRun> durable =
      args.self<TrainerHandle>("Trainer").durable;
  if (durable != nullptr) durable->before_step();
  const train::StepReport report = checked_step(args, trainer);
  const CurveOptions& curve = args.self<TrainerHandle>("Trainer").curve;
  Json row;
  if (curve.on) row = records::json_of(experiment::step_row(report, curve.norms));
  if (!curve.file.empty()) append_private(curve.file, one_line(row) + "\n");
  if (durable != nullptr) {
    durable->after_step(report.step);
    print_warnings(*durable);
  }
  Json phases = Json::object();
  for (const auto& [phase, ms] : report.phases) phases[phase] = ms;
  Json result{{"step", report.step},
              {"loss", report.loss},
              {"lr", report.lr},
              {"batch_size", report.batch_size},
              {"tokens", report.tokens},
              {"norms", report.norms},
              {"factors", report.factors},
              {"clip_fraction", report.clip_fraction},
              {"clip_bound", report.clip_bound},
              {"privacy_steps", report.privacy_steps},
              {"dropped", report.dropped},
              {"kept_bytes", report.kept_bytes},
              {"time_ms", report.time_ms},
              {"phases", phases},
              {"memory",
               {{"allocated_bytes", report.memory.allocated_bytes},
                {"max_allocated_bytes", report.memory.max_allocated_bytes},
                {"reserved_bytes", report.memory.reserved_bytes},
                {"rss_bytes", report.memory.rss_bytes}}}};
  if (report.epsilon) result["epsilon"] = *report.epsilon;
  if (report.grad_norm) result["grad_norm"] = *report.grad_norm;
  if (curve.on) result["row"] = std::move(row);
  if (!report.layers.empty()) result["layers"] = norms_by_layer(report);
  if (trainer.sharding_options().parallel != "none") {
    result["all_norms"] = report.all_norms;
    result["sharding"] = records::json_of(experiment::held_by_rank(trainer, report));
    result["traffic"] = records::json_of(experiment::traffic_of(report));
  }
  if (!report.spans.empty()) {
    Json spans = Json::array();
    for (const profile::Span& span : report.spans)
      spans.push_back({{"lane", span.lane},
                       {"name", span.name},
                       {"begin_ms", span.begin_ms},
                       {"end_ms", span.end_ms}});
    result["spans"] = std::move(spans);
  }
  if (report.details != nullptr) {
    const auto& spans = report.details->spans;
    Json details{{"memory", records::json_of(experiment::memory_part(report.details->memory))},
                 {"layers", records::json_of(train::layer_times(spans))},
                 {"comm", records::json_of(experiment::comm_rows(spans))}};
    const records::NormTimes norms = train::norm_times(spans);
    if (!records::is_missing(norms)) details["norms_ms"] = records::json_of(norms);
    result["details"] = std::move(details);
  }
  return to_lua(args.state(), result);
}

void trace_steps(const Arguments& args) {
  train::Trainer& trainer = open_trainer(args);
  const std::string file = args.path(2, "file");
  const int64_t steps = args.missing(3) ? 1 : args.integer(3, "steps");
  trainer.trace(steps, file);
}

sol::object read_trainer_field(const Arguments& args) {
  const std::string name = args.text(2, "field");
  train::Trainer& trainer = open_trainer(args);
  if (name == "model")
    return sol::make_object(args.state(), ModelHandle{args.self<TrainerHandle>("Trainer").model});
  if (name == "engine") return sol::make_object(args.state(), std::string(trainer.engine().name()));
  if (name == "steps")
    return sol::make_object(args.state(), static_cast<double>(trainer.state().step));
  if (name == "clip_bound") return sol::make_object(args.state(), trainer.clip_bound());
  if (name == "privacy_steps")
    return sol::make_object(args.state(), static_cast<double>(trainer.privacy_steps()));
  if (name == "units") return to_lua(args.state(), trainer.parallel().unit_names());
  if (name == "private") return sol::make_object(args.state(), trainer.engine().is_private());
  if (name == "noise_multiplier")
    return sol::make_object(args.state(), trainer.clip_options().noise_multiplier);
  if (name == "planned_steps")
    return sol::make_object(args.state(), static_cast<double>(trainer.account().planned_steps()));
  if (name == "steps_per_epoch")
    return sol::make_object(args.state(),
                            trainer.data() == nullptr ? 0.0 : trainer.data()->steps_per_epoch());
  throw UsageError(fmt::format(
      "Trainer: expected a field (model, engine, private, steps, privacy_steps, planned_steps, "
      "steps_per_epoch, noise_multiplier, clip_bound, units) or a method (step, fit, generate, "
      "privacy, "
      "gather, save, finish_save, durable, resume, trace, close), got '{}'",
      name));
}

}  // namespace

void bind_train(sol::table ms, sol::table native) {
  lua_State* L = ms.lua_state();
  ObjectType<TrainerHandle> trainer(L, "Trainer");
  trainer.method(
      "step", "([batch]) -> { loss, norms, clip_fraction, time_ms, phases, memory, … }",
      "One training step on the data's next batch, or on a batch of your own: a table of "
      "tensors as data:next() gives.",
      &run_step);
  trainer.method(
      "privacy", "() -> { epsilon, delta, accountant, history, … } or { why_no_epsilon }",
      "What the run has spent so far, and all that the claim rests on; without a claim the reason.",
      [](const Arguments& args) {
        return records::json_of(open_trainer(args).account().record());
      });
  trainer.method("gather", "()",
                 "Makes the parameters whole in the model, until the next step, for saving or "
                 "reading them; all ranks together.",
                 [](const Arguments& args) { open_trainer(args).gather(); });
  trainer.method("trace", "(file[, steps])",
                 "The next steps (1) go into a Chrome trace, which is written after the last of "
                 "them; a name that ends in .gz is compressed. Perfetto opens it.",
                 &trace_steps);
  add_checkpoint_methods(trainer);
  trainer.method("close", "()", "Gives the optimizer's and the engine's memory back now.",
                 [](const Arguments& args) {
                   TrainerHandle& handle = args.self<TrainerHandle>("Trainer");
                   handle.durable.reset();
                   handle.saver.reset();
                   handle.trainer.reset();
                   handle.model.reset();
                 });
  trainer.fields({"fit", "generate", "model", "engine", "private", "steps", "privacy_steps",
                  "planned_steps", "steps_per_epoch", "noise_multiplier", "clip_bound", "units"},
                 &read_trainer_field);
  bind_training(native);
  native["training"]["methods"] = trainer.methods();  // fit and generate are written in Lua
  trainer.text([](const TrainerHandle& handle) {
    if (handle.trainer == nullptr) return std::string("Trainer (closed)");
    return fmt::format("Trainer of {} with engine {}", handle.model->options().model,
                       handle.trainer->engine().name());
  });

  document_options<TrainerOptions>("ms.trainer", trainer_schema());
  document_options<privacy::PrivacyOptions>("ms.trainer.privacy", privacy_schema());
  document_options<privacy::ClipOptions>("ms.clip", clip_schema(), {"mode"});
  for (const char* name : {"ms.optim.sgd", "ms.optim.adam", "ms.optim.adamw"})
    document_options<optim::OptimizerOptions>(name, optimizer_schema(), {"optimizer"});
  define(ms, "ms", "trainer",
         "{ model, clip, optimizer, data, parallel, privacy, grad_accum, expected_batch_size, "
         "clip_global_norm, deterministic, "
         "compile, record_layers, record_timeline, record_details } -> Trainer",
         "Puts a model, a clipping engine, an optimizer, data and a wrapper together.",
         make_trainer);
  define(ms, "ms", "clip",
         "(engine, { clipping, max_grad_norm, groups, noise_multiplier, … }) -> table",
         "A clipping engine's options, checked. ms.engines() lists the engines.", checked_clip);
  sol::table optim(L, sol::create);
  define(optim, "ms.optim", "sgd", "{ lr, momentum } -> table", "Stochastic gradient descent.",
         [](const Arguments& args) { return checked_optimizer(args, "sgd"); });
  define(optim, "ms.optim", "adam", "{ lr, weight_decay, beta1, beta2, eps, … } -> table",
         "Adam, fused; weight decay is added to the gradient.",
         [](const Arguments& args) { return checked_optimizer(args, "adam"); });
  define(optim, "ms.optim", "adamw", "{ lr, weight_decay, beta1, beta2, eps, … } -> table",
         "AdamW, fused.", [](const Arguments& args) { return checked_optimizer(args, "adamw"); });
  ms["optim"] = optim;
  document(optim, "ms.optim", "ms.optim", "Optimizers: sgd, adam, adamw.");
}

}  // namespace moonshard::bindings
