// The private side of the training step: what it is divided by, its noise, and whether it may claim
// anything.
#include <ATen/ATen.h>

#include <map>
#include <mutex>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/secure_noise/secure_noise.h"
#include "runtime/optim/noise.h"
#include "runtime/privacy/faults.h"
#include "runtime/train/run_secret.h"
#include "runtime/train/step_progress.h"

namespace moonshard::train {

std::string privacy_obstacle(const privacy::ClipOptions& clip,
                             const sharding::ShardingOptions& sharding, const comm::World& world) {
  for (const privacy::EngineInfo& engine : privacy::engines()) {
    const auto& names = engine.aliases;
    const bool is_it =
        engine.name == clip.mode || std::find(names.begin(), names.end(), clip.mode) != names.end();
    if (is_it && !engine.is_private) return fmt::format("mode = {}: plain training", clip.mode);
    if (is_it && !engine.built_in)
      return fmt::format("mode = {}: an engine of a script, whose norms nobody has proven here",
                         clip.mode);
  }
  if (sharding.norm_reduce == "sum")
    return "norm_reduce = sum mixes samples of different ranks: for timing, not private";
  if (world.is_fake()) return "world = fake: the other ranks are only modelled, nothing is trained";
  return "";
}

std::shared_ptr<const kernels::ChaChaKey> shared_secret(comm::World& world) {
  const auto key = std::make_shared<kernels::ChaChaKey>(draw_secret_key());
  if (world.size() == 1 || world.is_fake()) return key;
  const auto group = world.group("statistics", c10::kCPU);
  at::Tensor own = at::empty({8}, at::kLong);
  for (int64_t i = 0; i < 8; ++i) own.data_ptr<int64_t>()[i] = static_cast<int64_t>(key->word[i]);
  const at::Tensor all = at::empty({8 * world.size()}, at::kLong);
  group->all_gather(all, own, "a secret").wait();
  // Of all of them: a rank that draws badly spoils nothing.
  for (int64_t i = 0; i < 8; ++i) key->word[i] = 0;
  for (int64_t i = 0; i < all.numel(); ++i)
    key->word[i % 8] ^= static_cast<uint32_t>(all.data_ptr<int64_t>()[i]);
  return key;
}

RandomWords sampling_words(comm::World& world, int64_t seed, bool secure) {
  return secure ? RandomWords(*shared_secret(world)) : RandomWords(static_cast<uint64_t>(seed));
}

namespace {

// Who updated a model last: an account is of the steps of one trainer, and two of them on one model
// with one seed draw the same noise.
struct ModelUse {
  std::weak_ptr<models::Model> model;
  int64_t last_trainer = 0;  ///< its serial; 0 before the first step of any
};

struct ModelUses {
  std::mutex mutex;
  std::map<const models::Model*, ModelUse> by_model;
};

ModelUses& model_uses() {
  static ModelUses uses;
  return uses;
}

constexpr const char* kSharedModel =
    "another trainer has updated the same model: an account is of one trainer's steps (of weights "
    "that were trained on public data: save them, and make a new model of them)";

}  // namespace

// Before a step of this trainer.
void Trainer::take_model() {
  ModelUses& uses = model_uses();
  const std::lock_guard<std::mutex> lock(uses.mutex);
  std::erase_if(uses.by_model, [](const auto& use) { return use.second.model.expired(); });
  ModelUse& use = uses.by_model[model_.get()];
  use.model = model_;
  if (use.last_trainer == serial_) return;
  if (use.last_trainer != 0) budget_.spoil(kSharedModel);
  use.last_trainer = serial_;
}

// The weights are those of a checkpoint now, whose account this trainer goes on with.
void Trainer::own_model() {
  ModelUses& uses = model_uses();
  const std::lock_guard<std::mutex> lock(uses.mutex);
  uses.by_model[model_.get()] = {model_, serial_};
}

const PrivacyBudget& Trainer::budget() const {
  ModelUses& uses = model_uses();
  const std::lock_guard<std::mutex> lock(uses.mutex);
  const auto use = uses.by_model.find(model_.get());
  if (step_ > 0 && use != uses.by_model.end() && use->second.last_trainer != serial_)
    budget_.spoil(kSharedModel);
  return budget_;
}

void Trainer::take_expected_batch_size() {
  const int64_t drawn = budget_.sampling().expected_batch_size;
  if (drawn == 0) return;
  MS_CHECK(options_.expected_batch_size == 0 || options_.expected_batch_size == drawn,
           "trainer: option 'expected_batch_size': expected {}, which the data is drawn for, got "
           "{}; give it to one of the two",
           drawn, options_.expected_batch_size);
  options_.expected_batch_size = drawn;
}

int64_t Trainer::step_denominator() {
  const int64_t samples = statistics_.counts().all_samples;
  if (privacy::has_fault(privacy::Fault::RealisedDenominator)) return std::max<int64_t>(1, samples);
  const int64_t denominator =
      options_.expected_batch_size > 0 ? options_.expected_batch_size : samples;
  MS_CHECK(
      denominator > 0,
      "trainer: expected at least one sample, got an empty batch; give expected_batch_size, so "
      "that a private step of noise alone has a denominator");
  MS_CHECK(engine_->is_private() || samples > 0,
           "trainer: expected at least one sample, got an empty batch; without privacy there is "
           "nothing to do in such a step");
  return denominator;
}

// Only this rank's elements are drawn, by their place in the parameter: any number of ranks draws
// the same noise, and none draws the whole. A trainable parameter that no sample touched gets its
// noise, too: its silence would tell.
optim::NoiseSpec Trainer::step_noise(int64_t denominator) const {
  optim::NoiseSpec noise;
  noise.denominator =
      privacy::has_fault(privacy::Fault::WrongDenominator) ? 1.0 : static_cast<double>(denominator);
  if (!engine_->is_private()) return noise;
  noise.std = clipping_->noise_std(denominator);
  noise.key = static_cast<uint64_t>(model_->options().seed);
  noise.secret = secret_;
  noise.step = static_cast<uint32_t>(step_ + 1);
  noise.updates_all = true;
  return noise;
}

void Trainer::add_count_noise(at::Tensor& count, double std) const {
  const auto step = static_cast<uint32_t>(step_);
  if (secret_ != nullptr) {
    kernels::add_secure_noise(count, std, {*secret_, step, kernels::kPurposeClipCount});
  } else {
    kernels::add_counter_noise(
        count, std,
        {static_cast<uint64_t>(model_->options().seed), step, kernels::kPurposeClipCount});
  }
}

// The gradients as the optimizer will use them, for the observer: each step of the way for itself.
void Trainer::show_gradients(const optim::NoiseSpec& noise, profile::PhaseTimer& timer) {
  const auto& updated = parallel_->updated();
  if (noise.updates_all) timer.begin("noise");
  for (size_t i = 0; i < updated.size(); ++i)
    optim::add_noise(*updated[i], parallel_->first_element(i), noise);
  timer.begin("optimizer");
  for (const auto& parameter : updated)
    if (parameter->grad.defined()) parameter->grad.div_(noise.denominator);
  parallel_->expose_gradients();
  gradient_observer_(*model_);
}

}  // namespace moonshard::train
