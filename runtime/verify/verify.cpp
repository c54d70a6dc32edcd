#include "runtime/verify/verify.h"

#include <ATen/ATen.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/core/determinism.h"
#include "runtime/core/interrupt.h"
#include "runtime/models/registry.h"
#include "runtime/train/micro_batches.h"
#include "runtime/verify/cases.h"
#include "runtime/verify/reference.h"

namespace moonshard::verify {
namespace {

constexpr double kLearningRate = 0.5;

// Largest error so far and what it was.
struct Worst {
  double error = 0;
  std::string what = "nothing";
  void add(double candidate, const char* name) {
    if (candidate <= error) return;  // not true for NaN, which must count
    error = std::isnan(candidate) ? std::numeric_limits<double>::infinity() : candidate;
    what = name;
  }
};

double relative_error(const at::Tensor& got, const at::Tensor& want) {
  const double size = want.norm().item<double>();
  return (got.to(want.device(), at::kDouble) - want).norm().item<double>() / std::max(size, 1e-300);
}

double largest_relative_error(const at::Tensor& got, const at::Tensor& want) {
  return ((got.to(want.device(), at::kDouble) - want).abs() / want.abs().clamp_min(1e-300))
      .max()
      .item<double>();
}

Batch make_batch(const models::Model& model, const Variant& variant) {
  data::SyntheticData source(model.options(), variant.batch_size, variant.seq_length);
  Batch batch = source.next();
  if (!batch.input_ids.defined()) return batch;
  // Few different ids, so that most of them repeat within a sample. 0 is the padding id.
  batch.input_ids = batch.input_ids.remainder(5) + 1;
  const bool is_lm = model.options().task == "lm";
  if (is_lm) {
    batch.labels = at::full_like(batch.input_ids, -100);
    const int64_t last = variant.seq_length - 1;
    batch.labels.narrow(1, 0, last).copy_(batch.input_ids.narrow(1, 1, last));
  }
  if (!variant.padded) return batch;
  for (int64_t b = 0; b < batch.size(); ++b) {
    const int64_t length = variant.seq_length - b % 4;
    batch.attention_mask[b].slice(0, length).fill_(false);
    batch.input_ids[b].slice(0, length).fill_(0);
    if (is_lm) batch.labels[b].slice(0, length - 1).fill_(-100);
    // And once in the middle: the row takes no part wherever the id stands.
    batch.input_ids[b][1] = 0;
  }
  return batch;
}

// Zero-initialised parameters (adaLN-Zero, biases) would hide what they multiply.
void move_off_zero(models::Model& model) {
  for (const auto& parameter : model.parameters()) {
    kernels::add_counter_noise(parameter->value, 0.05, {99, 7, parameter->index});
  }
}

// One model, batch and reference, shared by all engines.
class Bench {
 public:
  Bench(const VerifyOptions& options, const Subject& subject, const Variant& variant,
        const Format& format)
      : subject_(subject), variant_(variant), format_(format) {
    models::ModelOptions model;
    model.model = subject.model;
    model.task = subject.task;
    model.device = options.device;
    model.dtype = format.dtype;
    model.param_dtype = format.param_dtype;
    model.seed = options.seed;
    clip_.noise_multiplier = 0;
    step_.deterministic = true;
    variant.apply(model, clip_, step_);
    shrink(variant, model);
    model_ = models::make_model(model);
    move_off_zero(*model_);
    batch_ = prepared(make_batch(*model_, variant));
    const DeterminismGuard determinism(true);
    gradients_ = format.name == "bfloat16"
                     ? layerwise_gradients(*model_, train::micro_batches(batch_, step_.grad_accum))
                     : batch_of_one_gradients(*model_, batch_);
    groups_ = groups_of(*model_);
    choose_bound();
    expected_ = expected_clipping(gradients_, groups_, clip_);
    for (const auto& parameter : model_->parameters()) start_.push_back(parameter->value.clone());
  }

  std::vector<Cell> run(const std::string& engine, const Observer& observer) {
    for (size_t i = 0; i < start_.size(); ++i) model_->parameters()[i]->value = start_[i].clone();
    const bool is_private = engine != "none";
    std::map<std::string, Worst> worst;
    std::string error;
    try {
      compare(engine, is_private, worst, observer);
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& problem) {
      error = problem.what();
      for (const Group& group : groups_) worst[case_of(group)].add(NAN, "an error");
    }
    std::vector<Cell> cells;
    for (const auto& [layer, found] : worst) {
      cells.push_back({engine, subject_.model, subject_.task, layer, variant_.name, format_.name,
                       found.error, format_.tolerance, found.error <= format_.tolerance, found.what,
                       error});
    }
    return cells;
  }

 private:
  // A step prepares each of its micro-batches (a DiT drops labels); the reference must see the
  // same. Preparing twice changes nothing, so that the step may be given the prepared batch.
  Batch prepared(Batch batch) const {
    if (!batch.labels.defined()) return batch;
    std::vector<at::Tensor> labels;
    int64_t first = 0;
    for (const Batch& part : train::micro_batches(batch, step_.grad_accum)) {
      labels.push_back(model_->prepare(part, 0, first).labels);
      first += part.size();
    }
    batch.labels = at::cat(labels);
    return batch;
  }

  std::string case_of(const Group& group) const { return layer_case(*model_, *group.layers[0]); }

  // Between the middle norms, so that clipping acts on about half of the samples.
  void choose_bound() {
    std::vector<std::string> all;
    for (const auto& [name, rows] : gradients_) all.push_back(name);
    at::Tensor norms = norms_of(gradients_, all);
    if (clip_.clipping == "per_layer") {
      std::vector<at::Tensor> parts;
      for (const Group& group : groups_) parts.push_back(norms_of(gradients_, group.parameters));
      norms = at::cat(parts) * std::sqrt(static_cast<double>(groups_.size()));
    }
    const at::Tensor sorted = std::get<0>(norms.sort());
    const int64_t middle = sorted.size(0) / 2;
    clip_.max_grad_norm = sorted.size(0) == 1
                              ? sorted[0].item<double>() * 0.7
                              : (sorted[middle - 1] + sorted[middle]).item<double>() / 2;
  }

  void compare(const std::string& engine, bool is_private, std::map<std::string, Worst>& worst,
               const Observer& observer) {
    privacy::ClipOptions clip = clip_;
    clip.mode = engine;
    optim::OptimizerOptions sgd;
    sgd.lr = kLearningRate;
    train::Trainer trainer(model_, clip, sgd, nullptr, step_);
    trainer.record_layers(true);
    std::map<std::string, at::Tensor> used;  // the gradient that the optimizer was given
    trainer.observe_gradients([&](const models::Model& model) {
      for (const auto& parameter : model.parameters())
        if (parameter->grad.defined()) used[parameter->name] = parameter->grad.clone();
    });
    const train::StepReport report = trainer.step(batch_);
    Worst& all = worst["all"];
    if (is_private) compare_norms(clip, trainer, report, all, worst);
    const double samples = static_cast<double>(batch_.size());
    for (const Group& group : groups_) {
      Worst& layer = worst[case_of(group)];
      double difference = 0, size = 0, value_difference = 0, value_size = 0;
      for (const std::string& name : group.parameters) {
        const at::Tensor want = expected_gradient(name, is_private) / samples;
        const models::Parameter& parameter = model_->parameter(name);
        const at::Tensor start = start_[parameter.index].to(at::kDouble);
        const at::Tensor moved = start - want * kLearningRate;
        const auto got = used.find(name);
        const at::Tensor gradient =
            got == used.end() ? at::zeros_like(want) : got->second.to(at::kDouble);
        difference += (gradient - want).square().sum().item<double>();
        size += want.square().sum().item<double>();
        value_difference += (parameter.value.to(at::kDouble) - moved).square().sum().item<double>();
        value_size += moved.square().sum().item<double>();
      }
      layer.add(std::sqrt(difference / std::max(size, 1e-300)), "clipped sum");
      layer.add(std::sqrt(value_difference / std::max(value_size, 1e-300)), "weights");
    }
    for (const auto& parameter : model_->parameters()) {  // frozen ones must not move at all
      if (parameter->trainable) continue;
      if (!at::equal(parameter->value, start_[parameter->index]))
        all.add(INFINITY, "frozen weights");
    }
    if (observer.norms && is_private) show(report, engine, observer);
  }

  at::Tensor expected_gradient(const std::string& name, bool is_private) const {
    if (!is_private) return gradients_.at(name).sum(0);
    at::Tensor sum = expected_.clipped.at(name).clone();
    if (clip_.noise_multiplier > 0) {
      // Drawn once more from the counter; that it is normal noise is the kernel's own test.
      const models::Parameter& parameter = model_->parameter(name);
      const auto wide = parameter.value.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      at::Tensor noise = at::zeros(sum.sizes(), sum.options().dtype(wide));
      kernels::add_counter_noise(
          noise, clip_.noise_multiplier * clip_.max_grad_norm,
          {static_cast<uint64_t>(model_->options().seed), 1, parameter.index});
      sum = sum + noise.to(at::kDouble);
    }
    return sum;
  }

  void compare_norms(const privacy::ClipOptions& clip, const train::Trainer& trainer,
                     const train::StepReport& report, Worst& all,
                     std::map<std::string, Worst>& worst) const {
    all.add(largest_relative_error(at::tensor(report.norms, at::kDouble), expected_.norms.cpu()),
            "norm");
    if (expected_.factors.defined()) {
      all.add(
          largest_relative_error(at::tensor(report.factors, at::kDouble), expected_.factors.cpu()),
          "factor");
    }
    if (clip.clipping == "adaptive") {
      const double share =
          expected_.norms.le(clip.max_grad_norm).to(at::kDouble).mean().item<double>();
      const double want =
          clip.max_grad_norm * std::exp(-clip.quantile_lr * (share - clip.target_quantile));
      all.add(std::abs(trainer.clip_bound() / want - 1), "bound after the step");
    }
    // Micro-batches report one after the other: a group's norms are put together again.
    for (size_t i = 0; i < groups_.size(); ++i) {
      std::vector<at::Tensor> norms, factors;
      for (const privacy::LayerNorms& layer : report.layers) {
        if (layer.layer != groups_[i].name) continue;
        norms.push_back(layer.norms);
        if (layer.factors.defined()) factors.push_back(layer.factors);
      }
      Worst& kind = worst[case_of(groups_[i])];
      if (norms.empty()) {
        kind.add(NAN, "norm missing");
        continue;
      }
      kind.add(relative_error(at::cat(norms), expected_.group_norms[i]), "norm");
      if (!factors.empty())
        kind.add(relative_error(at::cat(factors), expected_.group_factors[i]), "factor");
    }
  }

  void show(const train::StepReport& report, const std::string& engine,
            const Observer& observer) const {
    NormsShown shown;
    shown.title = fmt::format("{} {} {}, {}, {}, bound {:.6g}, clipping acts on {:.0f} %", engine,
                              subject_.model, subject_.task, variant_.name, format_.name,
                              clip_.max_grad_norm, 100 * expected_.clipped_share);
    shown.before = report.norms;
    for (size_t b = 0; b < report.factors.size(); ++b)
      shown.after.push_back(report.norms[b] * report.factors[b]);
    const at::Tensor want = expected_.norms.cpu().contiguous();
    shown.expected.assign(want.data_ptr<double>(), want.data_ptr<double>() + want.numel());
    observer.norms(shown);
  }

  Subject subject_;
  Variant variant_;
  Format format_;
  privacy::ClipOptions clip_;
  train::StepOptions step_;
  std::shared_ptr<models::Model> model_;
  Batch batch_;
  PerSample gradients_;
  std::vector<Group> groups_;
  Expected expected_;
  std::vector<at::Tensor> start_;
};

template <class List, class NameOf>
void expect_known(const std::string& name, const char* what, const List& list, NameOf name_of) {
  if (name.empty()) return;
  std::vector<std::string> names;
  for (const auto& item : list) names.push_back(name_of(item));
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  const std::string near = nearest_name(name, names);
  throw UsageError(fmt::format("verify: option '{}': expected one of {}, got '{}'{}", what,
                               fmt::join(names, ", "), name,
                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

// The reference holds every sample's gradient twice, in double: a model that cannot fit is refused,
// not killed.
void expect_room(const VerifyOptions& options) {
  models::ModelOptions shapes;
  shapes.model = options.model;
  shapes.device = "meta";
  const double need = static_cast<double>(models::make_model(shapes)->num_parameters()) * 8 * 5 * 3;
  const double room = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  MS_CHECK(
      need < room,
      "verify: model '{}' needs about {:.0f} GiB for its per-sample gradients, this machine has "
      "{:.0f}; verify the family's -tiny preset, it has the same kinds of layers",
      options.model, need / 1073741824.0, room / 1073741824.0);
}

std::string engine_of(const std::string& name) {
  const auto aliases = privacy::engine_aliases();
  const auto alias = aliases.find(name);
  return alias == aliases.end() ? name : alias->second;
}

}  // namespace

std::vector<Cell> verify(const VerifyOptions& options, const Observer& observer) {
  const std::string wanted_engine = engine_of(options.engine);
  expect_known(wanted_engine, "engine", privacy::engine_names(), [](auto& name) { return name; });
  expect_known(options.options, "options", variants(), [](auto& variant) { return variant.name; });
  expect_known(options.dtype, "dtype", formats(), [](auto& format) { return format.name; });
  if (!options.model.empty()) expect_room(options);
  std::vector<Cell> cells;
  for (const Subject& subject : subjects(options.model)) {
    for (const Variant& variant : variants()) {
      if (!options.options.empty() && variant.name != options.options) continue;
      for (const Format& format : formats()) {
        if (!options.dtype.empty() && format.name != options.dtype) continue;
        if (!applies(variant, subject, format)) continue;
        throw_if_interrupted();
        Bench bench(options, subject, variant, format);
        for (const std::string& engine : privacy::engine_names()) {
          if (!wanted_engine.empty() && engine != wanted_engine) continue;
          if (!applies(variant, engine)) continue;
          for (Cell& cell : bench.run(engine, observer)) {
            if (observer.cell) observer.cell(cell);
            cells.push_back(std::move(cell));
          }
        }
      }
    }
  }
  MS_CHECK(!cells.empty(),
           "verify: expected options that name at least one cell, got none: engine '{}', model "
           "'{}' and options '{}' do not go together",
           options.engine, options.model, options.options);
  return cells;
}

records::Json to_json(const std::vector<Cell>& cells) {
  using records::Json;
  Json list = Json::array();
  int64_t failed = 0;
  for (const Cell& cell : cells) {
    Json entry{{"engine", cell.engine},       {"model", cell.model},     {"task", cell.task},
               {"layer", cell.layer},         {"options", cell.options}, {"dtype", cell.dtype},
               {"tolerance", cell.tolerance}, {"ok", cell.ok},           {"worst", cell.worst}};
    // JSON has no infinity: a failed cell without a figure says null.
    entry["max_rel_err"] = std::isfinite(cell.max_rel_err) ? Json(cell.max_rel_err) : Json(nullptr);
    if (!cell.error.empty()) entry["error"] = cell.error;
    failed += cell.ok ? 0 : 1;
    list.push_back(std::move(entry));
  }
  return Json{{"cells", std::move(list)}, {"failed", failed}};
}

std::vector<Support> support_table() {
  std::vector<Support> table;
  for (const privacy::EngineInfo& info : privacy::engines()) {
    if (!info.built_in) continue;  // nobody has proved it yet
    const std::string& engine = info.name;
    std::set<std::string> layers, presets, options, dtypes;
    for (const Subject& subject : subjects("")) {
      presets.insert(subject.model);
      for (const Variant& variant : variants()) {
        if (!applies(variant, engine) || !applies(variant, subject, formats()[0])) continue;
        models::ModelOptions shapes;
        privacy::ClipOptions clip;
        train::StepOptions step;
        shapes.model = subject.model;
        shapes.task = subject.task;
        shapes.device = "meta";
        variant.apply(shapes, clip, step);
        shrink(variant, shapes);
        const auto model = models::make_model(shapes);
        for (const auto& layer : model->layers())
          if (layer->trainable()) layers.insert(layer_case(*model, *layer));
        options.insert(variant.name);
      }
    }
    for (const Format& format : formats()) dtypes.insert(format.name);
    const auto list = [](const std::set<std::string>& names) {
      return std::vector<std::string>(names.begin(), names.end());
    };
    table.push_back({engine, list(layers), list(presets), list(options), list(dtypes)});
  }
  return table;
}

}  // namespace moonshard::verify
