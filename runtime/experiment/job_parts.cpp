#include "runtime/experiment/job_parts.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/data/classification_dataset.h"
#include "runtime/data/dataset_source.h"
#include "runtime/data/text_dataset.h"
#include "runtime/privacy/account.h"
#include "runtime/weights/load_model.h"

namespace moonshard::experiment {
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
  Json shared_facts() const override { return rest_->shared_facts(); }
  void use_seed(int64_t seed) override {
    first_.clear();
    rest_->use_seed(seed);
  }
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

// Steps that look closer, after the measured ones.
int64_t watched_steps(const ExperimentOptions& options) {
  return (options.profile != "off" ? options.watch_steps : 0) +
         (options.profile == "trace" ? 1 : 0);
}

}  // namespace

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
  loader.pad_batches = options.pad_batches;
  loader.skip_empty = options.mode == "none";
  const RandomWords words =
      privacy::sampling_words(world, options.seed, options.secure, options.mode, options.sampler);
  return std::make_unique<DrawnAhead>(
      std::make_unique<data::DatasetSource>(make_dataset(options), loader, words,
                                            resolve_device(options.device), world.rank(),
                                            world.size()),
      options.grad_accum);
}

ExperimentOptions planned(ExperimentOptions options, const data::Sampling& sampling) {
  const int64_t others = options.warmup + watched_steps(options);
  if (options.epochs > 0) {
    MS_CHECK(options.budget_steps == 0, "experiment: expected epochs or budget_steps, got both");
    const int64_t steps = privacy::steps_of_epochs(options.epochs, sampling);
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

std::shared_ptr<models::Model> make_model(const ExperimentOptions& options) {
  ExperimentOptions build = options;
  // Each rank then draws or reads its own part alone: the whole model never exists anywhere.
  build.deferred = options.parallel == "fsdp" && !options.whole_first;
  return weights::make_model(build);
}

std::unique_ptr<train::Trainer> make_trainer(const ExperimentOptions& options,
                                             std::shared_ptr<models::Model> model,
                                             std::unique_ptr<data::Source> source,
                                             const std::shared_ptr<comm::World>& world) {
  return std::make_unique<train::Trainer>(train::TrainerParts{.model = std::move(model),
                                                              .clip = options,
                                                              .optimizer = options,
                                                              .data = std::move(source),
                                                              .step = options,
                                                              .sharding = options,
                                                              .world = world,
                                                              .privacy = options});
}

}  // namespace moonshard::experiment
