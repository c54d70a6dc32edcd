#include "runtime/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include <fmt/ranges.h>

#include "runtime/checkpoint/all_or_none.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/core/device.h"
#include "runtime/models/model_schema.h"
#include "runtime/train/step_graph.h"
#include "runtime/train/trainer.h"
#include "runtime/weights/labels.h"
#include "runtime/weights/safetensors.h"
#include "runtime/weights/safetensors_writer.h"

namespace moonshard::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIdKey = "checkpoint";

// The worker's thread has streams of its own.
void finish_device_work(c10::Device device) {
  if (!device.is_cuda()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

std::map<std::string, std::vector<int64_t>> shapes_of(const models::Model& model) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& parameter : model.parameters())
    shapes[parameter->name] = parameter->value.sizes().vec();
  return shapes;
}

std::vector<std::string> frozen_names(const models::Model& model) {
  std::vector<std::string> names;
  for (const auto& parameter : model.parameters())
    if (!parameter->trainable) names.push_back(parameter->name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string joined(const std::vector<std::string>& words) {
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

// ---- does it fit? -----------------------------------------------------------------------------

void check_model(const CheckpointIndex& index, const models::Model& model,
                 const std::string& where) {
  const Json own = architecture(model.options());
  for (const auto& [name, value] : own.items()) {
    const auto saved = index.model.find(name);
    if (saved == index.model.end()) continue;  // an option that is younger than the checkpoint
    MS_CHECK(*saved == value,
             "checkpoint {}: model option '{}': expected {}, as saved, got {}; make the same model",
             where, name, saved->dump(), value.dump());
  }
  const auto shapes = shapes_of(model);
  const auto dtype = dtype_from_name(model.options().dtype);
  for (const auto& [name, shape] : shapes) {
    const StoredTensor* saved = index.find(name);
    MS_CHECK(saved != nullptr,
             "checkpoint {}: expected the parameters of model '{}', got none named '{}'; it "
             "belongs to another model",
             where, model.options().model, name);
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
             where, model.options().model, weights::in_quotes(tensor.name));
  }
  std::vector<std::string> frozen = index.frozen;
  std::sort(frozen.begin(), frozen.end());
  const std::vector<std::string> own_frozen = frozen_names(model);
  MS_CHECK(
      frozen == own_frozen,
      "checkpoint {}: expected these parameters frozen, as saved: {}; got: {}; freeze the same",
      where, joined(frozen), joined(own_frozen));
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

}  // namespace

// ---- writing ----------------------------------------------------------------------------------

Json architecture(const models::ModelOptions& options) {
  Json all = models::model_schema().to_json(&options);
  // How it computes, where its weights came from, what it is called; seed and frozen are apart.
  for (const char* name : {"model", "weights", "device", "param_dtype", "attention",
                           "checkpointing", "checkpoint_every", "frozen", "seed"})
    all.erase(name);
  return all;
}

RankState rank_state(sharding::Parallel& parallel, const optim::Optimizer& optimizer) {
  RankState state;
  std::map<uint32_t, std::vector<int64_t>> shapes;
  for (const sharding::KeptPart& part : parallel.kept_parts()) {
    const std::vector<int64_t> shape = part.parameter->value.sizes().vec();
    shapes[part.parameter->index] = shape;
    if (part.value.numel() > 0)
      state.parts.push_back({part.parameter->name, shape, part.first, part.value});
  }
  const auto& updated = parallel.updated();
  for (size_t i = 0; i < updated.size(); ++i) {
    const models::Parameter& parameter = *updated[i];
    const optim::ParameterState remembered = optimizer.state(parameter);
    if (parameter.value.numel() == 0 || remembered.tensors.empty()) continue;
    state.optimizer_steps[parameter.name] = remembered.steps;
    for (const auto& [name, tensor] : remembered.tensors) {
      state.parts.push_back({state_tensor_name(name, parameter.name), shapes[parameter.index],
                             parallel.first_element(i), tensor.flatten()});
    }
  }
  return state;
}

std::string write_rank_file(const fs::path& folder, const std::string& id, int rank,
                            const RankState& state) {
  Json parts = Json::array();
  weights::NamedTensors tensors;
  for (const TensorPart& part : state.parts) {
    const bool is_whole = part.values.numel() == c10::multiply_integers(part.shape);
    tensors.emplace_back(part.name, is_whole ? part.values.view(part.shape) : part.values);
    parts.push_back({part.name, weights::dtype_label(part.values.scalar_type(), part.name),
                     part.shape, part.first, part.values.numel()});
  }
  if (!tensors.empty()) {
    std::error_code ignored;
    MS_CHECK(fs::is_directory(folder, ignored),
             "checkpoint: {}: expected the folder that rank 0 made, got none; save to a disk that "
             "all ranks share",
             folder.string());
    weights::Metadata metadata = weights::kPortableMetadata;
    metadata[kIdKey] = id;
    weights::write_safetensors(folder / rank_file_name(rank), tensors, metadata);
  }
  return Json{{"parts", std::move(parts)}, {"steps", state.optimizer_steps}}.dump();
}

void add_rank(CheckpointIndex& index, int rank, const std::string& answer) {
  const Json told = Json::parse(answer);
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < index.tensors.size(); ++i) known[index.tensors[i].name] = i;
  for (const Json& part : told["parts"]) {
    const auto name = part[0].get<std::string>();
    const auto [place, is_new] = known.emplace(name, index.tensors.size());
    if (is_new) {
      index.tensors.push_back({name,
                               weights::dtype_from_label(part[1].get<std::string>(), name),
                               part[2].get<std::vector<int64_t>>(),
                               {}});
    }
    index.tensors[place->second].parts.push_back(
        {rank_file_name(rank), part[3].get<int64_t>(), part[4].get<int64_t>()});
  }
  for (const auto& [name, steps] : told["steps"].items())
    index.optimizer_steps[name] = steps.get<int64_t>();
}

fs::path Trainer::save(const fs::path& folder) {
  MS_CHECK(!world_->is_fake(),
           "checkpoint: expected real ranks, got world = {}; one rank of {} "
           "has only its own part",
           sharding_options_.world, world_->size());
  MS_CHECK(!half_resumed_ && !half_updated_,
           "checkpoint: expected whole weights, got those of a {} that failed on its way",
           half_resumed_ ? "resume" : "step");
  AllOrNone ranks(world_->group("checkpoint", c10::kCPU), "checkpoint save");
  // With ddp every rank has the same: one writes.
  const bool writes = sharding_options_.parallel != "ddp" || world_->rank() == 0;
  const RankState own = writes ? rank_state(*parallel_, *optimizer_) : RankState{};
  finish_device_work(device_);

  std::unique_ptr<PartialCheckpoint> partial;  // on rank 0
  const std::string name = ranks.run_on_first([&] {
    partial = std::make_unique<PartialCheckpoint>(folder, step_);
    return partial->path().filename().string();
  });
  const std::string id = name.substr(name.rfind('-') + 1);
  const std::vector<std::string> answers =
      ranks.run([&] { return write_rank_file(folder / name, id, world_->rank(), own); });
  ranks.run_on_first([&] {
    CheckpointIndex index;
    index.id = id;
    index.step = step_;
    index.seed = model_->options().seed;
    index.world = world_->size();
    index.parallel = {{"parallel", sharding_options_.parallel},
                      {"sharding", sharding_options_.sharding},
                      {"wrap", sharding_options_.wrap}};
    index.model = architecture(model_->options());
    index.model["model"] = model_->options().model;
    index.frozen = frozen_names(*model_);
    index.optimizer = optimizer_options_.optimizer;
    index.optimizer_states = optimizer_->state_names();
    if (data_ != nullptr) index.data_position = data_->position();
    const privacy::ClipOptions& clip = clipping_->options();
    index.is_private = engine_->is_private();
    index.engine = clip.mode;
    index.clipping = clip.clipping;
    index.noise_multiplier = clip.noise_multiplier;
    index.clip_bound = clipping_->bound();
    index.privacy_steps = privacy_steps_;
    index.privacy_history = budget_.history().to_json();
    index.noised_steps = budget_.noised_steps();
    index.secret_steps = budget_.secret_steps();
    for (size_t rank = 0; rank < answers.size(); ++rank)
      add_rank(index, static_cast<int>(rank), answers[rank]);
    partial->publish(index_text(index));
    return std::string();
  });
  return folder / checkpoint_name(step_);
}

// ---- reading ----------------------------------------------------------------------------------

void PartReader::add(const std::string& name, int64_t first, const at::Tensor& target) {
  const StoredTensor* tensor = index_.find(name);
  const int64_t end = first + target.numel();
  const auto fail = [&](const std::string& got) {
    throw IoError(
        fmt::format("{}: expected elements {} to {} of {} as {}, got {}; the index is "
                    "damaged or belongs to another model",
                    (folder_ / kIndexName).string(), first, end, weights::in_quotes(name),
                    dtype_name(target.scalar_type()), got));
  };
  if (tensor == nullptr) fail("no such tensor");
  if (tensor->dtype != target.scalar_type()) fail(dtype_name(tensor->dtype));
  int64_t covered = first;
  for (const StoredPart& part : tensor->parts) {
    const int64_t from = std::max(first, part.first), to = std::min(end, part.first + part.count);
    if (from >= to) continue;
    files_[part.file].push_back(
        {tensor, part.count, from - part.first, target.narrow(0, from - first, to - from)});
    covered = to;
  }
  if (covered != end) fail(fmt::format("elements up to {} only", covered));
}

void PartReader::check() const {
  for (const auto& [name, wanted] : files_) {
    const auto file = weights::SafetensorsFile::open(folder_ / name);
    const std::string where = file.path().string();
    const auto id = file.metadata().find(kIdKey);
    if (id == file.metadata().end() || id->second != index_.id) {
      throw IoError(fmt::format(
          "{}: expected a file of the checkpoint {} that the index describes, got {}; the folder "
          "has files of two checkpoints",
          where, weights::in_quotes(index_.id),
          id == file.metadata().end() ? "one of none" : weights::in_quotes(id->second)));
    }
    for (const Wanted& piece : wanted) {
      const weights::TensorEntry* entry = file.find(piece.tensor->name);
      const bool fits =
          entry != nullptr && entry->dtype == piece.tensor->dtype &&
          (entry->end - entry->begin) / static_cast<int64_t>(c10::elementSize(entry->dtype)) ==
              piece.count;
      if (fits) continue;
      throw IoError(fmt::format(
          "{}: tensor {}: expected {} elements of {}, as the index says, got "
          "{}; the folder is damaged",
          where, weights::in_quotes(piece.tensor->name), piece.count,
          dtype_name(piece.tensor->dtype), entry == nullptr ? "no such tensor" : "others"));
    }
  }
}

void PartReader::read() const {
  for (const auto& [name, wanted] : files_) {
    const auto file = weights::SafetensorsFile::open(folder_ / name);
    for (const Wanted& piece : wanted)
      file.read_range(piece.tensor->name, piece.position, piece.target);
  }
}

std::optional<int64_t> Trainer::resume(const fs::path& where, const ResumeOptions& options) {
  MS_CHECK(!world_->is_fake(), "checkpoint: expected real ranks, got world = {}",
           sharding_options_.world);
  AllOrNone ranks(world_->group("checkpoint", c10::kCPU), "checkpoint resume");
  const std::vector<sharding::KeptPart> kept = parallel_->kept_parts();
  finish_device_work(device_);

  // Rank 0 chooses: others might see a newer one.
  const std::string choice = ranks.run_on_first([&]() -> std::string {
    sweep_partial_checkpoints(where);
    const fs::path found = find_checkpoint(where);
    MS_CHECK(!found.empty() || options.if_any,
             "checkpoint: expected a checkpoint or a folder of them, got '{}' without any complete "
             "one; save one there first",
             where.string());
    if (found.empty()) return "";
    return read_index(found).id + "/" + (found == where ? "" : found.filename().string());
  });
  if (choice.empty()) return std::nullopt;
  const std::string chosen = choice.substr(choice.find('/') + 1);
  const fs::path folder = chosen.empty() ? where : where / chosen;

  // What is new memory is made here, too: nothing of the trainer has changed yet.
  CheckpointIndex index;
  std::vector<std::pair<const models::Parameter*, optim::ParameterState>> states;
  std::optional<PartReader> state_reader, value_reader;
  ranks.run([&] {
    index = read_index(folder);
    const std::string name = folder.string();
    MS_CHECK(choice.starts_with(index.id + "/"),
             "checkpoint {}: expected the one that rank 0 sees, got another; read from a disk that "
             "all ranks share",
             name);
    check_model(index, *model_, name);
    check_optimizer(index, optimizer_options_, *optimizer_, name);
    check_privacy(index, engine_->is_private(), clipping_->options(), name);
    MS_CHECK(options.other_seed || index.seed == model_->options().seed,
             "checkpoint {}: expected a model with seed {}, as saved, got seed {}; make it with "
             "that seed, or give other_seed = true for other noise and other data from here on",
             name, index.seed, model_->options().seed);
    state_reader.emplace(folder, index);
    value_reader.emplace(folder, index);
    for (const sharding::KeptPart& part : kept)
      if (part.value.numel() > 0) value_reader->add(part.parameter->name, part.first, part.value);
    const auto& updated = parallel_->updated();
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
        state_reader->add(tensor, parallel_->first_element(i), target);
        state.tensors.emplace_back(kind, target);
      }
      states.emplace_back(&parameter, std::move(state));
    }
    state_reader->check();
    value_reader->check();
    state_reader->read();
    finish_device_work(device_);
    return std::string();
  });

  half_resumed_ = true;
  ranks.run([&] {
    value_reader->read();
    finish_device_work(device_);
    return std::string();
  });
  parallel_->kept_parts_changed();
  optimizer_->forget_states();
  for (auto& [parameter, state] : states) {
    for (auto& [kind, tensor] : state.tensors) tensor = tensor.view(parameter->value.sizes());
    optimizer_->set_state(*parameter, state);
  }
  if (data_ != nullptr && index.data_position) data_->go_to(*index.data_position);
  if (clipping_->options().clipping == "adaptive") clipping_->set_bound(index.clip_bound);
  step_ = index.step;
  privacy_steps_ = index.privacy_steps;
  budget_.go_on_from(accountant::History::from_json(index.privacy_history, folder.string()),
                     privacy_steps_, index.noised_steps, index.secret_steps);
  own_model();
  half_resumed_ = half_updated_ = false;
  if (graph_ != nullptr) graph_->drop();
  return step_;
}

}  // namespace moonshard::train
