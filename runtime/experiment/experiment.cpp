#include "runtime/experiment/experiment.h"

#include <ATen/Parallel.h>

#include "runtime/core/device.h"
#include "runtime/core/memory_errors.h"
#include "runtime/data/classification_dataset.h"
#include "runtime/data/dataset_source.h"
#include "runtime/data/text_dataset.h"
#include "runtime/experiment/measurement.h"
#include "runtime/models/registry.h"
#include "runtime/profile/memory_history.h"
#include "runtime/profile/out_of_memory.h"
#include "runtime/profile/trace.h"
#include "runtime/records/writer.h"
#include "runtime/train/run_secret.h"
#include "runtime/train/step_graph.h"
#include "runtime/weights/make_model.h"

namespace moonshard::train {
namespace {

// The first step's batches are there before the model is, as in a script that makes its data first:
// the log of stages shows what each of the two takes.
class DrawnAhead : public data::Source {
 public:
  DrawnAhead(std::unique_ptr<data::Source> rest, int64_t grad_accum)
      : rest_(std::move(rest)), first_(rest_->next_step(grad_accum)) {}
  Batch next() override { return rest_->next(); }
  std::vector<Batch> next_step(int64_t grad_accum) override {
    if (first_.empty()) return rest_->next_step(grad_accum);
    return std::exchange(first_, {});
  }
  int64_t position() const override { return rest_->position(); }
  void go_to(int64_t position) override {
    first_.clear();
    rest_->go_to(position);
  }
  data::Sampling sampling() const override { return rest_->sampling(); }
  Json facts() const override { return rest_->facts(); }

 private:
  std::unique_ptr<data::Source> rest_;
  std::vector<Batch> first_;
};

std::shared_ptr<const data::Dataset> make_dataset(const ExperimentOptions& options) {
  MS_CHECK(options.data_folder.empty() || options.data_file.empty(),
           "experiment: expected data_folder or data_file, got both");
  if (options.data_file.empty()) {
    data::TextOptions text;
    text.folder = options.data_folder;
    text.tokenizer = options.tokenizer;
    text.packing = options.packing;
    text.invalid_utf8 = options.invalid_utf8;
    text.max_length = options.seq_length;
    return data::make_text_dataset(text, options);
  }
  data::ClassificationOptions labelled;
  labelled.file = options.data_file;
  labelled.tokenizer = options.tokenizer;
  labelled.invalid_utf8 = options.invalid_utf8;
  labelled.max_length = options.seq_length;
  return data::make_classification_dataset(labelled, options);
}

std::unique_ptr<data::Source> make_source(const ExperimentOptions& options, comm::World& world) {
  if (options.data_folder.empty() && options.data_file.empty()) {
    MS_CHECK(options.sampler == "fixed",
             "experiment: option 'sampler': expected data_folder or data_file to draw from, got {} "
             "of synthetic data, which has no end",
             options.sampler);
    return std::make_unique<DrawnAhead>(
        std::make_unique<data::SyntheticData>(options, options.batch_size, options.seq_length,
                                              world.rank(), world.size()),
        options.grad_accum);
  }
  data::LoaderOptions loader;
  loader.sampler = options.sampler;
  loader.batch_size = options.batch_size;
  loader.grad_accum = options.grad_accum;
  loader.expected_batch_size = options.expected_batch_size;
  loader.prefetch = options.prefetch;
  loader.skip_empty = options.mode == "none";
  const RandomWords words = sampling_words(world, options.seed, options.secure);
  return std::make_unique<DrawnAhead>(
      std::make_unique<data::DatasetSource>(make_dataset(options), loader, words,
                                            resolve_device(options.device), world.rank(),
                                            world.size()),
      options.grad_accum);
}

// Steps that look closer, after the measured ones. They train, too, and count.
int64_t watched_steps(const ExperimentOptions& options) {
  return (options.profile != "off" ? 1 : 0) + (options.profile == "trace" ? 1 : 0);
}

// Epochs say how many steps there are; a budget is for all of them.
ExperimentOptions planned(ExperimentOptions options, const data::Sampling& sampling) {
  const int64_t others = options.warmup + watched_steps(options);
  if (options.epochs > 0) {
    MS_CHECK(options.budget_steps == 0, "experiment: expected epochs or budget_steps, got both");
    const int64_t steps = steps_of_epochs(options.epochs, sampling);
    MS_CHECK(steps > others,
             "experiment: option 'epochs': expected more steps than the {} of warm-up and profile, "
             "got {} steps in {} epochs",
             others, steps, options.epochs);
    if (options.lr_total_steps == options.warmup + options.iters) options.lr_total_steps = steps;
    options.iters = steps - others;
  }
  options.epochs = 0;  // they are steps now
  options.budget_steps = std::max(options.budget_steps, others + options.iters);
  return options;
}

void run_steps(const ExperimentOptions& asked, const StepObserver& observer,
               const std::filesystem::path& folder, Json& record) {
  const c10::Device device = resolve_device(asked.device);
  Measurement measurement(asked, device);
  measurement.add_stage("start");
  const auto world = comm::make_world(asked.world, asked.link);
  profile::set_current_phase("data");
  std::unique_ptr<data::Source> source = make_source(asked, *world);
  measurement.add_stage("after data");
  const ExperimentOptions options = planned(asked, source->sampling());
  ExperimentOptions build = options;
  // Each rank then draws or reads its own part alone: the whole model never exists anywhere.
  build.deferred = options.parallel == "fsdp";
  profile::set_current_phase("model");
  std::shared_ptr<models::Model> model = weights::make_model(build);
  Trainer trainer(model, options, options, std::move(source), options, options, world, options);
  if (asked.target_epsilon > 0 || asked.epochs > 0) {  // what was chosen, not what was asked for
    ExperimentOptions used = options;
    used.epochs = asked.epochs;
    used.budget_steps = asked.budget_steps;
    used.noise_multiplier = trainer.clip_options().noise_multiplier;
    record["options"] = experiment_schema().to_json(&used);
  }
  measurement.add_stage("after model creation");
  profile::set_current_phase("");
  for (int64_t i = 0; i < options.warmup + options.iters; ++i) {
    const bool is_warmup = i < options.warmup;
    if (i == options.warmup) measurement.begin_measured_steps();
    const StepReport report = trainer.step();
    measurement.add_step(trainer, report, is_warmup);
    if (observer) observer(report, is_warmup);
    if (i + 1 == options.warmup) measurement.end_warmup();
  }
  measurement.end_measured_steps();
  // After the measured steps, so that watching does not disturb them.
  if (options.profile != "off") {
    trainer.record_details(true);
    measurement.add_detailed_step(trainer, trainer.step());
    trainer.record_details(false);
  }
  if (options.profile == "trace") {
    trainer.trace(1, folder / profile::trace_file_name(world->rank()));
    trainer.step();
  }
  measurement.finish(trainer, record);
}

}  // namespace

const OptionSchema& experiment_schema() {
  static const OptionSchema schema = [] {
    using T = ExperimentOptions;
    OptionSchema s("experiment");
    models::add_model_options<T>(s);
    privacy::add_clip_options<T>(s);
    optim::add_optimizer_options<T>(s);
    add_step_options<T>(s);
    sharding::add_sharding_options<T>(s);
    add_privacy_options<T>(s);
    s.integer<T>("nproc", &T::nproc, 1, 4096,
                 "ranks on this machine; parallel says what they share");
    s.integer<T>("batch_size", &T::batch_size, 0, 1e9,
                 "samples per micro-batch and rank; 0 takes the model preset's");
    s.integer<T>("seq_length", &T::seq_length, 0, 1e8,
                 "tokens per sample; 0 takes the model preset's")
        .aliases = {"seq_len"};
    s.integer<T>("iters", &T::iters, 1, 1e9, "measured steps").aliases = {"num_iter", "num_iters"};
    s.integer<T>("warmup", &T::warmup, 0, 1e9, "steps before measuring; recorded apart").aliases = {
        "warmup_iter", "warmup_iters"};
    s.choice<T>("profile", &T::profile, {"off", "phases", "layers", "trace"},
                "what is looked at after the measured steps: nothing; memory by owner and "
                "communication; norms by layer, too; a Chrome trace, too");
    s.text<T>("data_folder", &T::data_folder,
              "folder with .txt, .json or .jsonl text for task lm; empty takes synthetic batches");
    s.text<T>("data_file", &T::data_file,
              ".jsonl file with text and label on every line, for task classify");
    s.text<T>("tokenizer", &T::tokenizer,
              "bytes, a tokenizer.json (byte-level BPE), or a folder that has one");
    s.choice<T>("packing", &T::packing, {"packed", "padded"},
                "documents end to end in samples of seq_length, or one document per sample");
    s.choice<T>("invalid_utf8", &T::invalid_utf8, {"error", "replace"},
                "what becomes of bytes that are no text");
    s.choice<T>(
        "sampler", &T::sampler, {"fixed", "shuffled", "poisson"},
        "which samples a step takes: in order, in a new order each epoch, or each by a coin "
        "of its own, which alone carries an epsilon; batch_size is then the most of a "
        "micro-batch");
    s.integer<T>("prefetch", &T::prefetch, 0, 64, "steps whose data is fetched ahead; 0: none");
    s.boolean<T>("memory_history", &T::memory_history,
                 "record PyTorch's GPU memory history: snapshot.pickle, also when memory runs out");
    s.integer<T>("threads", &T::threads, 0, 4096, "CPU threads; 0 takes all cores");
    s.integer<T>("memory_limit_mb", &T::memory_limit_mb, 0, 1e9,
                 "cap on host tensors, beyond it the point is out of memory; 0 means none");
    return s;
  }();
  return schema;
}

ExperimentOptions resolve_experiment(const ExperimentOptions& options) {
  ExperimentOptions resolved = options;
  static_cast<models::ModelOptions&>(resolved) = weights::resolve_model(options);
  const models::Preset& preset = models::find_preset(resolved.model);
  if (resolved.batch_size == 0) resolved.batch_size = preset.batch_size;
  if (resolved.seq_length == 0) resolved.seq_length = preset.seq_length;
  // An image's patches are what they are; vectors have no tokens, but sweeps may name some.
  if (resolved.task == "denoise")
    resolved.seq_length = models::tokens_per_sample(resolved, resolved.seq_length);
  // A GPU that was named by its number stays that one.
  const bool on_gpu = resolve_device(options.device).is_cuda();
  if (!options.device.starts_with("cuda:")) resolved.device = on_gpu ? "cuda" : "cpu";
  // Measured steps are replays then: steps before the graph, and the one that makes it, warm up.
  if (resolved.compile && on_gpu)
    resolved.warmup = std::max(resolved.warmup, StepGraph::kEagerSteps + 1);
  if (resolved.lr_schedule != "constant" && resolved.lr_total_steps == 0)
    resolved.lr_total_steps = resolved.warmup + resolved.iters;
  return resolved;
}

Json resolve_experiment_table(const Json& table) {
  ExperimentOptions options;
  experiment_schema().assign_all(&options, table);
  const ExperimentOptions resolved = resolve_experiment(options);
  return experiment_schema().to_json(&resolved);
}

Json run_experiment(const ExperimentOptions& options, const StepObserver& observer,
                    const std::filesystem::path& folder) {
  const ExperimentOptions resolved = resolve_experiment(options);
  profile::install_cpu_memory_hook();
  profile::set_cpu_memory_limit(resolved.memory_limit_mb << 20);
  if (resolved.threads > 0) at::set_num_threads(static_cast<int>(resolved.threads));
  Json record{{"schema_version", kSchemaVersion},
              {"status", "ok"},
              {"created", records::timestamp_utc()},
              {"options", experiment_schema().to_json(&resolved)}};
  std::unique_ptr<profile::MemoryHistory> history;
  const std::filesystem::path snapshot = folder / "snapshot.pickle";
  if (resolved.memory_history)
    history = std::make_unique<profile::MemoryHistory>(resolve_device(resolved.device));
  bool saved = false;
  const profile::OutOfMemoryWatch watch([&] {
    // Now, while what filled the memory is still there.
    if (history != nullptr && !saved) saved = history->save(snapshot);
  });
  try {
    try {
      run_steps(resolved, observer, folder, record);
      if (history != nullptr) saved = history->save(snapshot);
    } catch (...) {
      profile::set_cpu_memory_limit(0);
      rethrow_memory_errors();
    }
  } catch (const OutOfMemoryError& error) {
    record["status"] = "oom";
    record["error"] = error.what();
    record["bytes_asked"] = error.bytes_asked;
    if (const auto details = watch.seen()) {
      record["phase"] = details->phase;
      record["bytes_asked"] = details->bytes_asked;
      record["bytes_free"] = details->bytes_free;
    }
  }
  if (saved) record["memory_history"] = "snapshot.pickle";
  if (history != nullptr && !saved) record["why_no_memory_history"] = history->absence();
  profile::set_current_phase("");
  profile::set_cpu_memory_limit(0);
  return record;
}

Json seed_result(const Json& record) {
  const Json& options = record.at("options");
  const Json& metrics = record.at("metrics");
  const bool on_gpu = options.at("device").get<std::string>().starts_with("cuda");
  const int64_t ranks =
      record.contains("sharding") ? record.at("sharding").at("world").get<int64_t>() : 1;
  Json result{{"mode", options.at("mode")},
              {"seq_length", options.at("seq_length")},
              {"batch_size", options.at("batch_size")},
              {"total_batch_size", options.at("batch_size").get<int64_t>() * ranks},
              {"num_gpus", on_gpu ? ranks : 0},
              {"peak_memory_mb", metrics.at("peak_memory_mb")},
              {"peak_memory_gb", metrics.at("peak_memory_gb")},
              {"avg_time_ms", metrics.at("avg_time_ms")},
              {"config",
               {{"model_name", options.at("model")},
                {"vocab_size", options.at("vocab_size")},
                {"learning_rate", options.at("lr")},
                {"sigma", options.at("noise_multiplier")},
                {"max_grad_norm", options.at("max_grad_norm")}}}};
  // Beyond the documents' keys: the other ranks of this run were only modelled.
  if (record.contains("sharding") && record.at("sharding").at("fake").get<bool>())
    result["modelled_world"] = options.at("world");
  return result;
}

}  // namespace moonshard::train
