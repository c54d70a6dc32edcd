#include "runtime/checkpoint/durable.h"

#include <chrono>
#include <utility>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/communicator.h"

namespace moonshard::checkpoint {

// The trainer, its saver and its ranks.
class DurableRun::Parts final : public DurableParts {
 public:
  Parts(train::Trainer& trainer, Saver& saver) : trainer_(trainer), saver_(saver) {}

  AllOrNone ranks() override {
    return AllOrNone(trainer_.world().group("checkpoint", c10::kCPU), "durable run");
  }
  bool has_secret_noise() const override { return trainer_.account().secret() != nullptr; }
  void charge(const accountant::History& lost) override { trainer_.charge(lost); }
  int64_t resume(const std::filesystem::path& checkpoint) override {
    return checkpoint::resume(trainer_, checkpoint).value();
  }
  std::optional<accountant::History> account_after_step() const override {
    if (!trainer_.account().has_claim()) return std::nullopt;
    accountant::History history = trainer_.account().history();
    const double sigma = trainer_.clip_options().noise_multiplier;
    if (sigma > 0) history.add({trainer_.account().sampling().rate, sigma, 1});
    return history;
  }
  std::filesystem::path save(const std::filesystem::path& folder,
                             const SaveOptions& options) override {
    return saver_.save(folder, options);
  }
  void prepare() { saver_.prepare(); }
  std::vector<SaveOutcome> ended_saves() override { return saver_.ended(); }
  double seconds() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  // Ranks hear of a signal at different times: what each knew after one step is everybody's after
  // the next.
  bool must_stop() override {
    if (trainer_.world().size() == 1) return stop_requested();
    agreeing_.wait();
    const bool answer = agreed_.defined() && agreed_.item<int>() == 1;
    agreed_ = at::tensor({stop_requested() ? 1 : 0}, at::kInt);
    agreeing_ = trainer_.world()
                    .group("durable", c10::kCPU)
                    ->all_reduce(agreed_, "wish to stop", comm::Reduction::Max);
    return answer;
  }
  void finish_agreeing() { agreeing_.wait(); }

 private:
  train::Trainer& trainer_;
  Saver& saver_;
  comm::Pending agreeing_;
  at::Tensor agreed_;
};

DurableRun::DurableRun(train::Trainer& trainer, Saver& saver, std::filesystem::path folder,
                       const DurableOptions& options)
    : parts_(std::make_unique<Parts>(trainer, saver)),
      course_(std::make_unique<DurableCourse>(*parts_, std::move(folder), options)) {}

DurableRun::~DurableRun() = default;

void DurableRun::after_step(int64_t step) {
  if (steps_until_prepared_ > 0 && --steps_until_prepared_ == 0) parts_->prepare();
  try {
    course_->after_step(step);
  } catch (const Stopped&) {
    parts_->finish_agreeing();
    note_stopped();
    throw;
  }
}

}  // namespace moonshard::checkpoint
