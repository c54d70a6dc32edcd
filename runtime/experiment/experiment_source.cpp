#include "runtime/experiment/experiment_source.h"

#include <utility>

#include "runtime/core/device.h"
#include "runtime/data/classification_dataset.h"
#include "runtime/data/dataset_source.h"
#include "runtime/data/synthetic.h"
#include "runtime/data/text_dataset.h"
#include "runtime/privacy/run_secret.h"

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
  loader.skip_empty = options.mode == "none";
  const RandomWords words = privacy::sampling_words(world, options.seed, options.secure);
  return std::make_unique<DrawnAhead>(
      std::make_unique<data::DatasetSource>(make_dataset(options), loader, words,
                                            resolve_device(options.device), world.rank(),
                                            world.size()),
      options.grad_accum);
}

}  // namespace moonshard::experiment
