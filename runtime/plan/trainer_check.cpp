#include "runtime/plan/trainer_check.h"

#include <fmt/format.h>

#include "runtime/core/device.h"
#include "runtime/models/model.h"
#include "runtime/models/model_cost.h"
#include "runtime/plan/prediction.h"
#include "runtime/profile/host_memory.h"
#include "runtime/profile/memory.h"

namespace moonshard::plan {
namespace {

c10::Device device_of_model(const models::Model& model) {
  return const_cast<models::Model&>(model).seam().anchor.device();
}

// Of the model's weights, in memory that is no longer free.
double bytes_in_memory(const models::Model& model) {
  double bytes = 0;
  for (const auto& parameter : model.parameters())
    if (parameter->value.defined() && !parameter->value.is_meta() &&
        parameter->value.has_storage() && parameter->value.storage().nbytes() > 0)
      bytes += static_cast<double>(parameter->value.nbytes());
  return bytes;
}

}  // namespace

BatchShape shape_of_batch(const Batch& batch) {
  return {batch.size(), batch.input_ids.defined() ? batch.input_ids.size(1) : 1};
}

BatchShape shape_of_samples(const data::Dataset& dataset, int64_t batch_size) {
  BatchShape shape = shape_of_batch(dataset.batch({}));
  shape.batch_size = batch_size;
  return shape;
}

experiment::ExperimentOptions options_of_parts(const train::TrainerParts& parts,
                                               const BatchShape& shape) {
  experiment::ExperimentOptions options;
  static_cast<models::ModelOptions&>(options) = parts.model->options();
  static_cast<privacy::ClipOptions&>(options) = parts.clip;
  static_cast<optim::OptimizerOptions&>(options) = parts.optimizer;
  static_cast<train::StepOptions&>(options) = parts.step;
  static_cast<sharding::ShardingOptions&>(options) = parts.sharding;
  static_cast<privacy::PrivacyOptions&>(options) = parts.privacy;
  options.weights.clear();  // shapes alone
  options.batch_size = std::max<int64_t>(1, shape.batch_size);
  options.seq_length = std::max<int64_t>(1, shape.seq_length);
  return options;
}

void refuse_trainer_that_cannot_fit(const train::TrainerParts& parts, const BatchShape& shape) {
  const c10::Device device = device_of_model(*parts.model);
  const auto world = parts.world != nullptr ? parts.world : comm::this_world();
  // A GPU's memory is counted whole, the host's as what is free.
  const double already = device.is_cpu() ? bytes_in_memory(*parts.model) : 0;
  std::optional<Refusal> refusal;
  try {
    refusal = refusal_or_warning(options_of_parts(parts, shape), device, *world, already);
  } catch (const UsageError&) {
    return;  // what cannot be planned is the trainer's to refuse
  }
  if (!refusal) return;
  throw OutOfMemoryError("trainer: " + refusal->text + advice_lines(refusal->savings),
                         static_cast<int64_t>(refusal->needed));
}

// Ranks of one host come one after the other, and some may make no model: each is held against all
// that is left.
void refuse_model_that_cannot_fit(const models::ModelOptions& options) {
  if (options.device == "meta" || !resolve_device(options.device).is_cpu()) return;
  const int64_t free = profile::free_host_memory().bytes;
  const int64_t bytes = models::model_cost(options, 1, 1).parameter_bytes;
  if (free < 0 || bytes <= free) return;
  const bool half_fits = options.dtype == "float32" && bytes / 2 <= free;
  throw OutOfMemoryError(
      fmt::format("model: {}{}{} on cpu, got {} for its weights in {}; {}ms.plan says what a model "
                  "needs, and where",
                  options.model, kCannotFit, size_text(static_cast<double>(free)),
                  size_text(static_cast<double>(bytes)), options.dtype,
                  half_fits ? "dtype = \"bfloat16\" takes half of it, " : ""),
      bytes);
}

StepMemoryWatch::StepMemoryWatch(c10::Device device)
    : device_(device), watch_([this, device] {
        held_ = static_cast<double>(profile::read_memory(device).allocated_bytes);
      }) {}

void StepMemoryWatch::rethrow(const OutOfMemoryError& error,
                              const experiment::ExperimentOptions& options, int ranks) const {
  const profile::OutOfMemoryDetails details = watch_.seen().value_or(profile::OutOfMemoryDetails());
  std::string text = error.what();
  text += fmt::format("\n    in a step of {} samples{}", options.batch_size,
                      details.phase.empty() ? "" : ", in " + details.phase);
  if (held_ > 0) text += fmt::format(": {} were held", size_text(held_));
  if (details.bytes_asked > 0)
    text += fmt::format(", {} more were asked for",
                        size_text(static_cast<double>(details.bytes_asked)));
  const double free = std::max(0.0, static_cast<double>(details.bytes_free));
  if (details.bytes_free >= 0) text += fmt::format(", {} were free", size_text(free));
  // The plan knows who holds how much; how much there is was measured.
  try {
    Room room;
    room.device = device_;
    room.ranks = ranks;
    room.memory = held_ + free;
    if (room.memory > 0) text += advice_lines(savings_within(options, room));
  } catch (const UsageError&) {  // what cannot be planned has no advice
  }
  throw OutOfMemoryError(text, error.bytes_asked);
}

}  // namespace moonshard::plan
