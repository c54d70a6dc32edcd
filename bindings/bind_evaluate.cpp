// What ms.evaluate and Trainer:fit, which are Lua, are made of: native.training.
#include <cmath>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/trainer_methods.h"
#include "runtime/base/check.h"
#include "runtime/privacy/release.h"
#include "runtime/train/evaluate.h"

namespace moonshard::bindings {
namespace {

struct EvaluateOptions {
  int64_t batch_size = 32;
  bool intervals = true;
  bool is_public = false;
  double noise_multiplier = 0;
  double loss_bound = 0;
};

const OptionSchema& evaluate_schema() {
  static const OptionSchema schema("ms.evaluate", [](OptionSchema& s) {
    using T = EvaluateOptions;
    s.integer<T>("batch_size", &T::batch_size, 1, 1e9, "samples of a forward pass and rank");
    s.boolean<T>("intervals", &T::intervals, "95 % intervals beside the figures");
    s.boolean<T>("public", &T::is_public,
                 "the data is nobody's secret: exact figures need no protection");
    s.real<T>("noise_multiplier", &T::noise_multiplier, 0, 1e9,
              "of a trainer: noise of the sums behind the figures, which is charged to its account "
              "as a step of all samples; 0: exact figures");
    s.real<T>(
        "loss_bound", &T::loss_bound, 0, 1e9,
        "beside noise_multiplier: larger losses of a sample count as this; 0 takes twice that "
        "of a guess among all classes or tokens");
  });
  return schema;
}

// A list of batches, or the batches of a dataset.
train::EvaluationData evaluation_data(const Arguments& args, const models::Model& model,
                                      const EvaluateOptions& options) {
  if (args.is<DatasetHandle>(2))
    return train::batches_of(*args.object<DatasetHandle>(2, "Dataset").dataset, options.batch_size);
  lua_State* L = args.state();
  if (lua_type(L, 2) != LUA_TTABLE || lua_objlen(L, 2) == 0)
    args.fail(2, "a Dataset (ms.data.text, ms.data.classification) or a list of batches");
  std::vector<Batch> batches;
  for (size_t i = 1; i <= lua_objlen(L, 2); ++i) {
    lua_rawgeti(L, 2, static_cast<int>(i));
    batches.push_back(read_batch(Arguments(L, args.function_name()), lua_gettop(L), model));
    lua_pop(L, 1);
    MS_CHECK(batches.back().size() > 0, "{}: batch {}: expected samples, got none",
             args.function_name(), i);
  }
  return train::batches_of(std::move(batches));
}

Json interval_json(const std::optional<analysis::Interval>& interval) {
  if (!interval) return nullptr;
  return {{"low", interval->low}, {"high", interval->high}};
}

void set_interval(Json& intervals, const char* name,
                  const std::optional<analysis::Interval>& interval) {
  if (interval) intervals[name] = interval_json(interval);
}

Json class_rows(const analysis::EvaluationFigures& figures) {
  Json rows = Json::array();
  for (const analysis::ClassFigures& own : figures.classes) {
    Json row{{"count", own.count},         {"predicted", own.predicted}, {"correct", own.correct},
             {"precision", own.precision}, {"recall", own.recall},       {"f1", own.f1}};
    if (own.recall_interval) row["recall_interval"] = interval_json(own.recall_interval);
    if (own.f1_interval) row["f1_interval"] = interval_json(own.f1_interval);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json result_of(const std::string& task, const analysis::EvaluationFigures& figures) {
  Json result{{"task", task}, {"samples", figures.samples}};
  if (std::isfinite(figures.loss)) result["loss"] = figures.loss;
  if (figures.not_finite > 0) result["not_finite"] = figures.not_finite;
  Json intervals = Json::object();
  set_interval(intervals, "loss", figures.loss_interval);
  if (task == "lm") {
    if (figures.tokens > 0) result["tokens"] = figures.tokens;
    result["perplexity"] = std::exp(figures.loss);
    if (figures.loss_interval)
      intervals["perplexity"] = {{"low", std::exp(figures.loss_interval->low)},
                                 {"high", std::exp(figures.loss_interval->high)}};
  }
  if (!figures.classes.empty()) {
    result["accuracy"] = figures.accuracy;
    result["macro_f1"] = figures.macro_f1;
    result["micro_f1"] = figures.accuracy;
    result["classes"] = class_rows(figures);
    Json rows = Json::array();
    const size_t labels = figures.classes.size();
    for (size_t c = 0; c < labels; ++c)
      rows.push_back(
          std::vector<double>(figures.confusion.begin() + static_cast<long>(c * labels),
                              figures.confusion.begin() + static_cast<long>((c + 1) * labels)));
    result["confusion"] = std::move(rows);
    set_interval(intervals, "accuracy", figures.accuracy_interval);
    set_interval(intervals, "macro_f1", figures.macro_f1_interval);
  }
  if (!intervals.empty()) result["intervals"] = std::move(intervals);
  return result;
}

double default_loss_bound(const models::ModelOptions& model) {
  const int64_t choices = model.task == "lm"         ? model.vocab_size
                          : model.task == "classify" ? model.num_labels
                                                     : 0;
  return choices > 1 ? 2 * std::log(static_cast<double>(choices)) : 0;
}

// Charged before anything is shown, and written down where a restart would find it.
Json released(const Arguments& args, const EvaluateOptions& options,
              const analysis::EvaluatedSamples& samples) {
  TrainerHandle& handle = args.object<TrainerHandle>(1, "Trainer");
  train::Trainer& trainer = *handle.trainer;
  MS_CHECK(trainer.engine().is_private(),
           "{}: option 'noise_multiplier': expected a trainer with a private engine, whose account "
           "is charged, got engine {}",
           args.function_name(), trainer.engine().name());
  trainer.account().check_release(options.noise_multiplier);
  privacy::ReleaseOptions release{options.noise_multiplier, options.loss_bound};
  const models::ModelOptions& model = trainer.model().options();
  if (release.loss_bound == 0) release.loss_bound = default_loss_bound(model);
  const bool is_secret = trainer.account().secret() != nullptr;
  std::shared_ptr<const kernels::ChaChaKey> secret;
  if (is_secret) secret = privacy::shared_secret(trainer.world());
  const privacy::ReleasedEvaluation made =
      privacy::noised(samples, release, secret.get(), static_cast<uint64_t>(model.seed),
                      trainer.account().private_steps());
  accountant::History charge;
  charge.add({1, options.noise_multiplier, 1});
  trainer.charge(charge);
  if (handle.durable != nullptr) handle.durable->before_step();
  Json result = result_of(model.task, made.figures);
  Json noise{{"noise_multiplier", options.noise_multiplier},
             {"sensitivity", made.sensitivity},
             {"loss_bound", release.loss_bound},
             {"loss", made.loss_noise}};
  if (!made.figures.classes.empty()) noise["accuracy"] = made.accuracy_noise;
  result["noise"] = std::move(noise);
  const std::string reason = trainer.account().why_no_epsilon();
  result["private"] = reason.empty();
  result["privacy"] =
      reason.empty()
          ? fmt::format(
                "noised and charged: a Gaussian mechanism of noise multiplier {} over all "
                "{} samples; the number of samples is taken as known",
                options.noise_multiplier, made.figures.samples)
          : "not private: noised, but " + reason;
  return result;
}

// Says of exact figures what they are.
std::string privacy_of_exact(const train::Trainer* trainer, bool is_public) {
  if (is_public) return "exact figures of data that was said to be public";
  if (trainer != nullptr && trainer->engine().is_private())
    return "not private: exact figures of the samples, which the epsilon of the weights does not "
           "cover; noise_multiplier = … noises and charges them, public = true says that nobody "
           "is to be protected";
  return "not private: exact figures of the samples";
}

sol::object evaluate(const Arguments& args) {
  EvaluateOptions options;
  evaluate_schema().assign_all(&options, args.options(3));
  MS_CHECK(options.noise_multiplier == 0 || !options.is_public,
           "{}: expected noise_multiplier or public, got both", args.function_name());
  train::Trainer* trainer = nullptr;
  std::shared_ptr<models::Model> model;
  if (args.is<TrainerHandle>(1)) {
    const TrainerHandle& handle = args.object<TrainerHandle>(1, "Trainer");
    MS_CHECK(handle.trainer != nullptr, "{}: expected a trainer, got one that was closed",
             args.function_name());
    trainer = handle.trainer.get();
    model = handle.model;
  } else if (args.is<ModelHandle>(1)) {
    model = args.object<ModelHandle>(1, "Model").model;
    MS_CHECK(options.noise_multiplier == 0,
             "{}: option 'noise_multiplier': expected a trainer, whose account is charged, got a "
             "model",
             args.function_name());
  } else {
    args.fail(1, "a Model or a Trainer");
  }
  const train::EvaluationData data = evaluation_data(args, *model, options);
  const analysis::EvaluatedSamples samples =
      trainer != nullptr ? train::evaluate(*trainer, data) : train::evaluate(*model, data);
  if (options.noise_multiplier > 0) return to_lua(args.state(), released(args, options, samples));
  Json result =
      result_of(model->options().task, analysis::evaluation_figures(samples, options.intervals));
  result["private"] = false;
  result["privacy"] = privacy_of_exact(trainer, options.is_public);
  return to_lua(args.state(), result);
}

sol::object training_curve(const Arguments& args) {
  TrainerHandle& handle = args.object<TrainerHandle>(1, "Trainer");
  handle.curve = {args.boolean(2, "on"), args.boolean(3, "norms"),
                  args.missing(4) ? std::string() : args.path(4, "file")};
  return sol::make_object(args.state(), sol::lua_nil);
}

sol::object durable_folder(const Arguments& args) {
  const TrainerHandle& handle = args.object<TrainerHandle>(1, "Trainer");
  if (handle.durable == nullptr) return sol::make_object(args.state(), sol::lua_nil);
  return sol::make_object(args.state(), handle.durable_folder);
}

}  // namespace

void bind_training(sol::table native) {
  sol::table table(native.lua_state(), sol::create);
  document_options<EvaluateOptions>("ms.evaluate", evaluate_schema());
  table["evaluate"] = make_function(native.lua_state(), "ms.evaluate", evaluate);
  const auto add = [&](const char* name, const char* signature, const char* text, auto function) {
    define(table, "training", name, signature, text, function);
  };
  add("curve", "(trainer, on, norms, file)",
      "Puts a row of the training curve into each step's report, and into a file.", training_curve);
  add("durable_folder", "(trainer) -> text or nil", "Where durable() keeps its checkpoints.",
      durable_folder);
  native["training"] = table;
}

}  // namespace moonshard::bindings
