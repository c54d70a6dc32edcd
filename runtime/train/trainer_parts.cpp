// How a trainer is put together, and what its ranks must agree on before the first step.
#include <atomic>

#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/core/version.h"
#include "runtime/optim/optimizer.h"
#include "runtime/privacy/rank_agreement.h"
#include "runtime/train/step_finish.h"
#include "runtime/train/step_graph.h"
#include "runtime/train/step_watch.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {
namespace {

// 0 without a plan.
int64_t planned_steps(const TrainerParts& parts) {
  if (parts.privacy.budget_steps > 0) return parts.privacy.budget_steps;
  if (parts.privacy.epochs == 0 || parts.data == nullptr) return 0;
  return privacy::steps_of_epochs(parts.privacy.epochs, parts.data->sampling());
}

// Before the model is taken apart for the ranks.
TrainerParts checked(TrainerParts parts) {
  MS_ASSERT(parts.model != nullptr, "a trainer without a model");
  // A schedule's end, where nobody gave it, is the plan's.
  if (parts.optimizer.lr_total_steps == 0 && parts.optimizer.lr_schedule != "constant")
    parts.optimizer.lr_total_steps = planned_steps(parts);
  std::vector<std::string> names;
  for (const auto& parameter : parts.model->parameters()) names.push_back(parameter->name);
  optim::no_decay_globs(parts.optimizer.no_decay, names);
  MS_CHECK(parts.step.clip_global_norm == 0 || parts.clip.mode == "none",
           "trainer: option 'clip_global_norm': expected clip = none, got {}, which clips each "
           "sample's gradient (max_grad_norm)",
           parts.clip.mode);
  optim::learning_rate(parts.optimizer, parts.optimizer.lr_warmup_steps + 1);
  const bool one_norm = parts.clip.clipping != "per_layer" && parts.clip.clipping != "groups";
  MS_CHECK(parts.sharding.norm_reduce != "sum" || one_norm,
           "trainer: norm_reduce = sum expects one norm per sample, got clipping = {}",
           parts.clip.clipping);
  sharding::refuse_unused_options(parts.sharding);
  if (parts.world == nullptr)
    parts.world = comm::make_world(parts.sharding.world, parts.sharding.link);
  return parts;
}

data::Sampling sampling_of(const data::Source* data) {
  if (data != nullptr) return data->sampling();
  data::Sampling given;
  given.sampler = "given";
  given.why_no_epsilon = "batches are given by the script: nobody knows how they were drawn";
  return given;
}

std::vector<std::string> trained_names(const models::Model& model) {
  std::vector<std::string> names;
  for (const auto& parameter : model.parameters())
    if (parameter->trainable) names.push_back(parameter->name);
  return names;
}

// Data that is drawn for a batch size says what sums are divided by.
int64_t expected_batch_size(int64_t asked, int64_t drawn) {
  MS_CHECK(drawn == 0 || asked == 0 || asked == drawn,
           "trainer: option 'expected_batch_size': expected {}, which the data is drawn for, got "
           "{}; give it to one of the two",
           drawn, asked);
  return drawn != 0 ? drawn : asked;
}

int64_t next_trainer_id() {
  static std::atomic<int64_t> count{0};
  return ++count;
}

}  // namespace

Trainer::Trainer(TrainerParts parts)
    : parts_(checked(std::move(parts))),
      hooks_(parts_.hooks != nullptr ? *parts_.hooks : privacy::no_hooks()),
      device_(resolve_device(parts_.model->options().device)),
      id_(next_trainer_id()),
      account_(parts_.privacy, sampling_of(parts_.data.get()),
               privacy::privacy_obstacle(parts_.clip, parts_.sharding, *parts_.world),
               parts_.model->last_trainer(), id_),
      model_draws_(model().seed_words()),
      clipping_(std::make_shared<privacy::Clipping>(account_.with_noise(parts_.clip),
                                                    trained_names(*parts_.model))),
      engine_(privacy::make_engine(parts_.clip, clipping_)),
      optimizer_(parts_.optimizer),
      parallel_(sharding::make_parallel(*parts_.model, parts_.sharding, *parts_.world)),
      statistics_(*parts_.world, device_),
      watch_(std::make_unique<StepWatch>(device_)) {
  parts_.step.expected_batch_size =
      expected_batch_size(parts_.step.expected_batch_size, account_.sampling().expected_batch_size);
  const FinishParts own{*parts_.world, statistics_, *parallel_, *clipping_,
                        account_,      hooks_,      model()};
  if (engine_->is_private()) {
    draw_secrets();
    finish_ = make_private_finish(own);
    compare_ranks();
  } else {
    finish_ = make_plain_finish(own);
  }
  engine_->use_hooks(hooks_);
  if (parts_.sharding.norm_reduce == "sum") {
    engine_->reduce_norms_by([this](const at::Tensor& squares) {
      if (parts_.world->size() > 1) own_squares_ = squares;
      return statistics_.summed(squares);
    });
  }
  if (parts_.step.compile == "no") return;
  graph_ = std::make_unique<StepGraph>(
      device_, graph_obstacle(device_, parts_.clip.mode, parts_.clip.clipping, parts_.sharding),
      /*by_itself=*/parts_.step.compile == "auto");
}

Trainer::~Trainer() = default;

void Trainer::draw_secrets() {
  account_.draw_secret(*parts_.world);
  model_draws_ = privacy::model_words(*parts_.world, model().options().seed, parts_.privacy.secure);
}

// Everything that a claim rests on, and where the run stands.
void Trainer::compare_ranks() const {
  if (parts_.world->size() == 1) return;  // examples need not be read
  std::vector<privacy::SharedFact> facts{{"version of the library", library_version()}};
  Json model_options = models::model_schema().to_json(&model().options());
  model_options.erase("device");
  privacy::add_option_facts(facts, "model", model_options);
  std::string parameters;
  for (const auto& parameter : model().parameters())
    parameters += fmt::format("{} {} {}\n", parameter->name, c10::str(parameter->value.sizes()),
                              parameter->trainable);
  facts.push_back({"model: parameters and which of them are trained", parameters, true});
  const OptionSchema clip("clip", privacy::add_clip_options<privacy::ClipOptions>);
  const OptionSchema budget("privacy", [](OptionSchema& s) {
    privacy::add_privacy_options<privacy::PrivacyOptions>(s);
    privacy::add_release_options<privacy::PrivacyOptions>(s);
  });
  const OptionSchema optimizer("optimizer", optim::add_optimizer_options<optim::OptimizerOptions>);
  privacy::add_option_facts(facts, "clip", clip.to_json(&clipping_->options()));
  privacy::add_option_facts(facts, "privacy", budget.to_json(&parts_.privacy));
  privacy::add_option_facts(facts, "optimizer", optimizer.to_json(&parts_.optimizer));
  privacy::add_option_facts(facts, "parallel",
                            sharding::sharding_schema().to_json(&parts_.sharding));
  if (parts_.data != nullptr) privacy::add_option_facts(facts, "data", parts_.data->shared_facts());
  privacy::add_option_facts(facts, "trainer",
                            {{"expected_batch_size", parts_.step.expected_batch_size},
                             {"grad_accum", parts_.step.grad_accum},
                             {"step", step_},
                             {"history", account_.history().to_json()}});
  facts.push_back({"the secret of the noise", account_.secret_name(), true});
  privacy::require_agreement(*parts_.world, facts);
}

}  // namespace moonshard::train
