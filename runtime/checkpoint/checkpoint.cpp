#include "runtime/checkpoint/checkpoint.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/checkpoint/all_or_none.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_index.h"
#include "runtime/checkpoint/integrity.h"
#include "runtime/checkpoint/run_parts.h"
#include "runtime/checkpoint/tensor_parts.h"
#include "runtime/core/device.h"
#include "runtime/models/model_options.h"
#include "runtime/train/trainer.h"
#include "runtime/weights/safetensors.h"

namespace moonshard::checkpoint {
namespace {

std::map<std::string, std::vector<int64_t>> shapes_of(const models::Model& model) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& parameter : model.parameters())
    shapes[parameter->name] = parameter->value.sizes().vec();
  return shapes;
}

std::string joined(const std::vector<std::string>& words) {
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

void check_model(const CheckpointIndex& index, const models::Model& model,
                 const std::string& where) {
  const Json own = architecture(model.options());
  for (const auto& [name, value] : own.items()) {
    const auto saved = index.model.find(name);
    if (saved == index.model.end()) continue;  // an option that is younger than the checkpoint
    MS_CHECK(*saved == value,
             "checkpoint {}: model option '{}': expected {}, as saved, got {}; make the same model",
             where, name, one_line(*saved), one_line(value));
  }
  const auto shapes = shapes_of(model);
  for (const auto& [name, shape] : shapes) {
    const StoredTensor* saved = index.find(name);
    if (saved == nullptr && index.is_in_base(name)) continue;
    MS_CHECK(saved != nullptr,
             "checkpoint {}: expected the parameters of model '{}', got none named '{}'; it "
             "belongs to another model",
             where, model.options().model, name);
    const auto dtype = model.kept_type(model.parameter(name));
    MS_CHECK(saved->shape == shape && saved->dtype == dtype,
             "checkpoint {}: parameter '{}': expected {} {}, as saved, got {} {} in model '{}'; "
             "make the same model",
             where, name, dtype_name(saved->dtype), weights::shape_text(saved->shape),
             dtype_name(dtype), weights::shape_text(shape), model.options().model);
  }
  for (const StoredTensor& tensor : index.tensors) {
    MS_CHECK(tensor.name.starts_with("optimizer/") || shapes.contains(tensor.name),
             "checkpoint {}: expected the parameters of model '{}', got {} as well; it belongs to "
             "another model",
             where, model.options().model, in_quotes(tensor.name));
  }
  std::vector<std::string> frozen = index.frozen;
  std::sort(frozen.begin(), frozen.end());
  const std::vector<std::string> own_frozen = frozen_names(model);
  MS_CHECK(
      frozen == own_frozen,
      "checkpoint {}: expected these parameters frozen, as saved: {}; got: {}; freeze the same",
      where, joined(frozen), joined(own_frozen));
}

// What the checkpoint lacks must come from where it came from then.
void check_base(const CheckpointIndex& index, const models::Model& model,
                const std::string& where) {
  if (!index.base) return;
  const auto own = weights::base_weights(model);
  MS_CHECK(
      own,
      "checkpoint {}: expected a LoRA model made from the weights in {}, which the checkpoint "
      "does not repeat, got one made without, or whose weights another checkpoint has replaced; "
      "make it from the same weights",
      where, in_quotes(index.base->path));
  MS_CHECK(
      own->fingerprint == index.base->fingerprint && own->parameters == index.base->parameters,
      "checkpoint {}: expected a model made from the weights that the run had in {} "
      "(fingerprint {:.12}…), which the checkpoint does not repeat, got others in {} ({:.12}…); "
      "give the same weights",
      where, in_quotes(index.base->path), index.base->fingerprint, in_quotes(own->path),
      own->fingerprint);
}

void check_optimizer(const CheckpointIndex& index, const optim::OptimizerOptions& options,
                     const optim::Optimizer& optimizer, const std::string& where) {
  const std::vector<std::string> names = optimizer.state_names();
  MS_CHECK(
      index.optimizer == options.optimizer && index.optimizer_states == names,
      "checkpoint {}: expected optimizer {} (state: {}), as saved, got {} (state: {}); use the "
      "same",
      where, index.optimizer, joined(index.optimizer_states), options.optimizer, joined(names));
}

// States in 16 bits go on in 16 bits, others not.
void check_state_dtypes(const CheckpointIndex& index, const train::Trainer& trainer,
                        const std::string& where) {
  for (const auto& parameter : trainer.parallel().updated()) {
    for (const std::string& kind : index.optimizer_states) {
      const StoredTensor* saved = index.find(state_tensor_name(kind, parameter->name));
      if (saved == nullptr) continue;
      const at::ScalarType own = trainer.optimizer().state_type(*parameter);
      MS_CHECK((saved->dtype == at::kBFloat16) == (own == at::kBFloat16),
               "checkpoint {}: expected optimizer states in {}, as saved, got {} (state_dtype = "
               "{}); use the same state_dtype",
               where, dtype_name(saved->dtype), dtype_name(own),
               trainer.optimizer_options().state_dtype);
    }
  }
}

void check_privacy(const CheckpointIndex& index, bool is_private, const privacy::ClipOptions& clip,
                   const std::string& where) {
  MS_CHECK(index.is_private == is_private,
           "checkpoint {}: expected {} engine, as saved, got '{}'; steps of both kinds make no "
           "private run",
           where, index.is_private ? "a private" : "no private", clip.mode);
  if (!is_private) return;
  // Engines give the same sums; the noise and what it is scaled to make the guarantee. Steps that
  // are accounted for one by one may differ in their noise.
  const bool accounted = accountant::History::from_json(index.privacy_history, where).num_steps() ==
                         static_cast<double>(index.privacy_steps);
  MS_CHECK((accounted || index.noise_multiplier == clip.noise_multiplier) &&
               index.clipping == clip.clipping,
           "checkpoint {}: expected noise_multiplier {} and clipping {}, as its {} private steps "
           "had, got {} and {}; a count of steps is for one kind of step",
           where, index.noise_multiplier, index.clipping, index.privacy_steps,
           clip.noise_multiplier, clip.clipping);
  if (index.clip_bound >= 1e-12 && index.clip_bound <= 1e12) return;
  throw IoError(fmt::format("{}/{}: 'bound': expected 1e-12 to 1e12, got {}; the file is damaged",
                            where, kIndexName, index.clip_bound));
}

// Throws UsageError that names the first difference, and IoError where the index is damaged.
// `where` is the checkpoint's folder. With `other_seed` the model's seed may be another.
void check_fits(const CheckpointIndex& index, const train::Trainer& trainer, bool other_seed,
                const std::string& where) {
  check_model(index, trainer.model(), where);
  check_base(index, trainer.model(), where);
  check_optimizer(index, trainer.optimizer_options(), trainer.optimizer(), where);
  check_state_dtypes(index, trainer, where);
  check_privacy(index, trainer.engine().is_private(), trainer.clip_options(), where);
  const int64_t seed = trainer.model().options().seed;
  MS_CHECK(other_seed || index.seed == seed || trainer.model().options().seed_is_drawn,
           "checkpoint {}: expected a model with seed {}, as saved, got seed {}; make it with "
           "that seed, or give other_seed = true for other noise and other data from here on",
           where, index.seed, seed);
}

namespace fs = std::filesystem;

train::RunState state_of(const CheckpointIndex& index, const std::string& where) {
  train::RunState state;
  state.step = index.step;
  state.data_position = index.data_position;
  state.clip_bound = index.clip_bound;
  state.spent.history = accountant::History::from_json(index.privacy_history, where);
  state.spent.private_steps = index.privacy_steps;
  state.spent.noised_steps = index.noised_steps;
  state.spent.secret_steps = index.secret_steps;
  state.spent.why_no_epsilon = index.why_no_epsilon;
  state.checkpoint = index.seal;
  return state;
}

// Optimizer states of this rank's parts, in memory of their own, which the reader will fill.
using StateOf = std::pair<const models::Parameter*, optim::ParameterState>;
std::vector<StateOf> wanted_states(const CheckpointIndex& index, const sharding::Parallel& parallel,
                                   PartReader& reader) {
  std::vector<StateOf> states;
  const auto& updated = parallel.updated();
  for (size_t i = 0; i < updated.size(); ++i) {
    const models::Parameter& parameter = *updated[i];
    const auto steps = index.optimizer_steps.find(parameter.name);
    if (parameter.value.numel() == 0 || steps == index.optimizer_steps.end()) continue;
    optim::ParameterState state;
    state.steps = steps->second;
    for (const std::string& kind : index.optimizer_states) {
      const std::string tensor = state_tensor_name(kind, parameter.name);
      const StoredTensor* saved = index.find(tensor);
      const at::Tensor target =
          at::empty({parameter.value.numel()},
                    parameter.value.options().dtype(
                        saved != nullptr ? saved->dtype : parameter.value.scalar_type()));
      reader.add(tensor, parallel.first_element(i), target);
      state.tensors.emplace_back(kind, target);
    }
    states.emplace_back(&parameter, std::move(state));
  }
  return states;
}

// Everything that this rank will read, before anything changes. Reading checks again: what is
// changed in between is found, too.
void check_sums(const CheckpointIndex& index, const fs::path& folder,
                const std::vector<const PartReader*>& readers) {
  if (!index.has_sums) return;
  std::set<std::string> names;
  for (const PartReader* reader : readers) reader->add_files(names);
  check_files(folder, index.files, names);
  for (const PartReader* reader : readers) reader->check_blocks();
}

// A key that some ranks have and others lack would let some of them claim what others do not.
void check_reasons(const std::vector<std::string>& reasons) {
  for (size_t rank = 1; rank < reasons.size(); ++rank) {
    MS_CHECK(reasons[rank] == reasons[0],
             "checkpoint: expected {} on all ranks or on none, got '{}' on rank 0 and '{}' on rank "
             "{}; set it for all",
             kKeyVariable, reasons[0], reasons[rank], rank);
  }
}

// Rank 0 chooses: others might see a newer one. "" when there is none; else "<id>/<name>", where
// the name is empty for `where` itself.
std::string choose_checkpoint(const fs::path& where, bool if_any) {
  sweep_partial_checkpoints(where);
  const fs::path found = find_checkpoint(where);
  MS_CHECK(!found.empty() || if_any,
           "checkpoint: expected a checkpoint or a folder of them, got '{}' without any complete "
           "one; save one there first",
           where.string());
  if (found.empty()) return "";
  return read_index(found, checkpoint_key()).id + "/" +
         (found == where ? "" : found.filename().string());
}

}  // namespace

std::optional<int64_t> resume(train::Trainer& trainer, const fs::path& where,
                              const ResumeOptions& options) {
  comm::World& world = trainer.world();
  MS_CHECK(!world.is_fake(), "checkpoint: expected real ranks, got world = {}",
           trainer.sharding_options().world);
  AllOrNone ranks(world.group("checkpoint", c10::kCPU), "checkpoint resume");
  const std::vector<sharding::KeptPart> kept = trainer.parallel().kept_parts();
  finish_device_work(trainer.model());
  const std::string choice =
      ranks.run_on_first([&] { return choose_checkpoint(where, options.if_any); });
  if (choice.empty()) return std::nullopt;
  const std::string chosen = choice.substr(choice.find('/') + 1);
  const fs::path folder = chosen.empty() ? where : where / chosen;

  // What is new memory is made here, too: nothing of the trainer has changed yet.
  CheckpointIndex index;
  std::vector<StateOf> states;
  train::RunState state;
  std::optional<PartReader> state_reader, value_reader;
  const std::vector<std::string> reasons = ranks.run([&] {
    index = read_index(folder, checkpoint_key());
    MS_CHECK(choice.starts_with(index.id + "/"),
             "checkpoint {}: expected the one that rank 0 sees, got another; read from a disk that "
             "all ranks share",
             folder.string());
    check_fits(index, trainer, options.other_seed, folder.string());
    state = state_of(index, folder.string());
    if (trainer.model().options().seed_is_drawn && !options.other_seed) state.seed = index.seed;
    state_reader.emplace(folder, index);
    value_reader.emplace(folder, index);
    for (const sharding::KeptPart& part : kept)
      if (part.value.numel() > 0 && !index.is_in_base(part.parameter->name))
        value_reader->add(part.parameter->name, part.first, part.value, part.low);
    states = wanted_states(index, trainer.parallel(), *state_reader);
    state_reader->check();
    value_reader->check();
    check_sums(index, folder, {&*state_reader, &*value_reader});
    state_reader->read();
    finish_device_work(trainer.model());
    return index.why_no_epsilon;
  });
  check_reasons(reasons);

  trainer.begin_restore();
  // Frozen ones, too, whatever the files say: the next save must have them.
  if (!index.base) trainer.model().values_are_replaced();
  ranks.run([&] {
    value_reader->read();
    finish_device_work(trainer.model());
    return std::string();
  });
  trainer.parallel().kept_parts_changed();
  trainer.optimizer().forget_states();
  for (auto& [parameter, remembered] : states) {
    for (auto& [kind, tensor] : remembered.tensors) tensor = tensor.view(parameter->value.sizes());
    trainer.optimizer().set_state(*parameter, remembered);
  }
  trainer.restore(state);
  return state.step;
}

}  // namespace moonshard::checkpoint
