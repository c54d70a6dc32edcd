#include "runtime/checkpoint/saver.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "runtime/base/check.h"
#include "runtime/checkpoint/all_or_none.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/integrity.h"
#include "runtime/checkpoint/run_parts.h"
#include "runtime/checkpoint/tensor_parts.h"

namespace moonshard::checkpoint {

// A save that has begun on all ranks: what is left to do needs the trainer no more.
struct SaveJob {
  AllOrNone ranks;
  std::filesystem::path folder, partial_path;
  int rank = 0;
  SaveOptions options;
  RankState state;
  CheckpointIndex index;
  std::unique_ptr<PartialCheckpoint> partial = {};  ///< on rank 0, like the key
  std::string key = {};
  bool has_key = false;

  // Returns the seal of the index.
  std::string write() {
    const auto write_part = [&] {
      return write_rank_file(partial_path, index.id, rank, state, has_key);
    };
    const auto make_index = [&](const std::vector<std::string>& answers) {
      for (size_t i = 0; i < answers.size(); ++i) add_rank(index, static_cast<int>(i), answers[i]);
      const std::string text = index_text(index, key);
      return IndexText{text, seal_of(text)};
    };
    return write_in_order(ranks, partial, options, write_part, make_index);
  }
};

namespace {

namespace fs = std::filesystem;
using SaveClock = std::chrono::steady_clock;

double seconds_since(SaveClock::time_point begin) {
  return std::chrono::duration<double>(SaveClock::now() - begin).count();
}

// A signal must reach the thread that runs Lua.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

void check_saveable(train::Trainer& trainer) {
  MS_CHECK(!trainer.world().is_fake(),
           "checkpoint: expected real ranks, got world = {}; one rank of {} "
           "has only its own part",
           trainer.sharding_options().world, trainer.world().size());
  MS_CHECK(trainer.half_done().empty(),
           "checkpoint: expected whole weights, got those of a {} that failed on its way",
           trainer.half_done());
}

// Of ranks that have the same, one writes: all with ddp, those of other copies with fsdp.
bool writes_a_part(train::Trainer& trainer) {
  const sharding::ShardingOptions& sharding = trainer.sharding_options();
  const int ranks = trainer.world().size();
  return trainer.world().rank() <
         (sharding.parallel == "ddp" ? 1 : sharding::ranks_of_a_copy(sharding, ranks));
}

SaveJob begin(train::Trainer& trainer, const fs::path& folder, const SaveOptions& options,
              bool looks_for_base, std::optional<weights::BaseWeights>& base) {
  comm::World& world = trainer.world();
  const char* group = options.wait ? "checkpoint" : "checkpoint behind";
  SaveJob job{
      AllOrNone(options.wait ? world.group(group, c10::kCPU) : world.background_group(group),
                "checkpoint save"),
      folder,
      {},
      world.rank(),
      options,
      {},
      {}};
  if (looks_for_base) {
    job.ranks.run([&] {
      base = weights::base_weights(trainer.model());
      return std::string();
    });
  }
  const auto left_out =
      options.whole || !trainer.model().has_values_of_files() ? std::nullopt : base;
  if (writes_a_part(trainer))
    job.state = rank_state(trainer.parallel(), trainer.optimizer(), left_out);
  const int64_t step = trainer.state().step;
  const std::string name = job.ranks.run_on_first([&] {
    job.key = checkpoint_key();
    job.partial = std::make_unique<PartialCheckpoint>(folder, step);
    return job.partial->path().filename().string() + (job.key.empty() ? " " : "+");
  });
  job.has_key = name.back() == '+';
  job.partial_path = folder / name.substr(0, name.size() - 1);
  const std::string id = job.partial_path.filename().string();
  job.index = index_of(trainer, id.substr(id.rfind('-') + 1));
  job.index.base = left_out;
  return job;
}

}  // namespace

// Page-locked memory is slow to get (seconds for a large model), and copies from a GPU are several
// times faster into it.
struct Saver::Copies {
  std::map<std::string, at::Tensor> values, low;
  std::thread getting;

  ~Copies() { wait(); }
  void wait() {
    if (getting.joinable()) getting.join();
  }

  struct Place {
    at::Tensor* held;
    std::vector<int64_t> sizes;
    at::TensorOptions options;
  };
  // Empty where the memory is there already.
  static std::optional<Place> missing(std::map<std::string, at::Tensor>& known,
                                      const std::string& name, const at::Tensor& tensor) {
    at::Tensor& held = known[name];
    if (!tensor.defined() || (held.defined() && held.sizes() == tensor.sizes() &&
                              held.scalar_type() == tensor.scalar_type()))
      return std::nullopt;
    const auto options = at::TensorOptions().dtype(tensor.scalar_type());
    return Place{&held, tensor.sizes().vec(), options.pinned_memory(tensor.is_cuda())};
  }
  static void fill(const Place& place) { *place.held = at::empty(place.sizes, place.options); }

  static void copy(std::map<std::string, at::Tensor>& known, const std::string& name,
                   at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (const auto place = missing(known, name, tensor)) fill(*place);
    tensor = known[name].copy_(tensor, /*non_blocking=*/true);
  }
  void take(RankState& state) {
    wait();
    const at::NoGradGuard no_grad;
    for (TensorPart& part : state.parts) {
      copy(values, part.name, part.values);
      copy(low, part.name, part.low);
    }
  }
  std::vector<Place> missing(const RankState& state) {
    wait();
    std::vector<Place> places;
    for (const TensorPart& part : state.parts) {
      if (const auto place = missing(values, part.name, part.values)) places.push_back(*place);
      if (const auto place = missing(low, part.name, part.low)) places.push_back(*place);
    }
    return places;
  }
  // In a thread. What cannot be had now is asked for again by the save, which reports it.
  void get(const RankState& state) {
    const BlockedSignals blocked;
    getting = std::thread([places = missing(state)] {
      try {
        for (const Place& place : places) fill(place);
      } catch (const std::exception&) {
      }
    });
  }
};

struct Saver::Behind {
  explicit Behind(SaveJob begun) : job(std::move(begun)) {}

  SaveJob job;
  SaveOutcome outcome;
  std::string seal;
  std::atomic<bool> is_done{false};
  std::thread thread;

  void run() {
    const auto start = SaveClock::now();
    try {
      seal = job.write();
    } catch (const std::exception& error) {
      outcome.error = error.what();
    }
    job.partial.reset();
    outcome.written_s = seconds_since(start);
    is_done.store(true, std::memory_order_release);
  }
};

Saver::Saver(train::Trainer& trainer) : trainer_(trainer), copies_(std::make_unique<Copies>()) {}

Saver::~Saver() {
  join();
}

void Saver::join() {
  if (behind_ == nullptr) return;
  behind_->thread.join();
  // Runs of many thousand saves whose outcomes nobody asks for must not grow.
  std::erase_if(unheard_, [](const SaveOutcome& outcome) { return outcome.error.empty(); });
  unheard_.push_back(behind_->outcome);
  if (behind_->outcome.error.empty()) trainer_.note_checkpoint(behind_->seal);
  behind_.reset();
}

std::vector<SaveOutcome> Saver::finish() {
  join();
  return std::exchange(unheard_, {});
}

std::vector<SaveOutcome> Saver::ended() {
  if (behind_ == nullptr || behind_->is_done.load(std::memory_order_acquire)) join();
  return std::exchange(unheard_, {});
}

void Saver::prepare() {
  // Of a model with a base in files only the adapters are saved, and those are small.
  if (!writes_a_part(trainer_) || weights::has_base_weights(trainer_.model())) return;
  copies_->get(rank_state(trainer_.parallel(), trainer_.optimizer(), std::nullopt));
}

bool Saver::is_prepared() {
  return copies_->missing(rank_state(trainer_.parallel(), trainer_.optimizer(), std::nullopt))
      .empty();
}

fs::path Saver::save(const fs::path& folder, const SaveOptions& options) {
  MS_CHECK(options.keep >= 0 && options.keep_every >= 0,
           "checkpoint: expected keep and keep_every of at least 0, got {} and {}", options.keep,
           options.keep_every);
  check_saveable(trainer_);
  const auto start = SaveClock::now();
  join();
  SaveJob job = begin(trainer_, folder, options, !has_base_ && !options.whole, base_);
  has_base_ = has_base_ || !options.whole;
  SaveOutcome outcome;
  outcome.step = job.index.step;
  outcome.path = folder / checkpoint_name(outcome.step);
  if (options.wait) {
    finish_device_work(trainer_.model());
    trainer_.note_checkpoint(job.write());
    return outcome.path;
  }
  copies_->take(job.state);
  finish_device_work(trainer_.model());
  outcome.waited_s = seconds_since(start);
  behind_ = std::make_unique<Behind>(std::move(job));
  behind_->outcome = outcome;
  const BlockedSignals blocked;
  behind_->thread = std::thread([behind = behind_.get()] { behind->run(); });
  return outcome.path;
}

fs::path save(train::Trainer& trainer, const fs::path& folder) {
  return Saver(trainer).save(folder);
}

}  // namespace moonshard::checkpoint
