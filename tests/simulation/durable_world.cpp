// A durable run of one to three ranks under a launcher that restarts it: killed, cut from power or
// asked to end at any moment, on a disk that now and then has no space.
//   Nothing acknowledged is lost: a run goes on from the last save that was reported done, or a
//   later one, and every checkpoint that looks complete is whole.
//   The account is never below the truth: a resumed run has charged every step whose noise was
//   drawn; after a power cut every step but those since the account was last synced.
//   A run without faults comes to its end.
#include <map>
#include <span>

#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/base/checksum.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/json.h"
#include "runtime/checkpoint/durable_course.h"
#include "runtime/launch/restarts.h"
#include "tests/simulation/fake_disk.h"
#include "tests/simulation/simulation.h"

namespace moonshard::simulation {
namespace {

namespace fs = std::filesystem;
using checkpoint::AllOrNone;
using checkpoint::PartialCheckpoint;
using checkpoint::SaveOptions;
using checkpoint::SaveOutcome;

const char* const kFolder = "run/checkpoints";
constexpr double kRate = 0.01, kSigma = 1.0;

// The ranks' texts of one exchange after another.
struct Meeting {
  int size = 1;
  std::vector<std::vector<std::optional<std::string>>> rounds;
};

struct World {
  World(uint64_t seed, Defect kind, bool keeps_log)
      : scheduler(seed, keeps_log), disk(scheduler), defect(kind) {}

  Scheduler scheduler;
  FakeDisk disk;
  Defect defect;
  std::string problem;

  // What the observer knows.
  int64_t acknowledged = 0;         ///< step of the newest save that was reported done
  double acknowledged_account = 0;  ///< steps that it has charged
  double drawn = 0;                 ///< steps whose noise was drawn
  std::vector<std::pair<double, double>> written;  ///< when an account was written: time, steps
  bool lost_power = false;

  // The job's present start.
  int ranks = 1;
  std::vector<int64_t> groups;
  bool asked_to_end = false;
  std::map<std::string, Meeting> meetings;

  int64_t last_step = 0;
  int64_t every = 1, keep = 1;
  bool waits = false;

  void fail(const std::string& text) {
    if (problem.empty()) problem = text;
    scheduler.log("BROKEN: " + text);
  }
  bool is_lost(const std::vector<int64_t>& all) const {
    for (const int64_t group : all)
      if (!scheduler.is_alive(group)) return true;
    return false;
  }
};

class SimulatedExchange final : public checkpoint::Exchange {
 public:
  SimulatedExchange(World& world, int rank, std::string name)
      : world_(world), rank_(rank), name_(std::move(name)) {}

  int rank() const override { return rank_; }
  int size() const override { return world_.ranks; }
  std::string perform(const std::function<std::string()>& work) override { return work(); }

  std::vector<std::string> gather(const std::string& own) override {
    Scheduler& scheduler = world_.scheduler;
    const size_t round = next_++;
    scheduler.sleep(scheduler.random.between(0, 0.02));  // messages come late, in any order
    auto& rounds = world_.meetings[name_].rounds;
    if (rounds.size() <= round) rounds.resize(round + 1);
    rounds[round].resize(static_cast<size_t>(world_.ranks));
    rounds[round][static_cast<size_t>(rank_)] = own;
    const auto all_came = [&] {
      for (const auto& text : world_.meetings[name_].rounds[round])
        if (!text) return false;
      return true;
    };
    while (!scheduler.wait_for(all_came, 1.0)) {
      // The watchdog's part, which another world tests.
      if (world_.is_lost(world_.groups)) throw Error("a rank is missing");
    }
    std::vector<std::string> texts;
    for (const auto& text : world_.meetings[name_].rounds[round]) texts.push_back(*text);
    return texts;
  }

 private:
  World& world_;
  int rank_;
  std::string name_;
  size_t next_ = 0;
};

// Stands for model, optimizer and trainer: a step number and an account.
class SimulatedTrainer final : public checkpoint::DurableParts,
                               public std::enable_shared_from_this<SimulatedTrainer> {
 public:
  SimulatedTrainer(World& world, int rank, int64_t start)
      : world_(world),
        rank_(rank),
        front_(std::make_shared<SimulatedExchange>(world, rank, fmt::format("{}/front", start))),
        behind_(std::make_shared<SimulatedExchange>(world, rank, fmt::format("{}/behind", start))) {
  }

  int64_t step = 0;
  accountant::History history;

  AllOrNone ranks() override { return AllOrNone(front_); }
  bool has_secret_noise() const override { return true; }
  void charge(const accountant::History& lost) override {
    for (const auto& phase : lost.phases()) history.add(phase);
  }
  double seconds() const override { return world_.scheduler.now(); }
  bool must_stop() override {
    bool stops = false;
    for (const std::string& wish : ranks().run([&] { return world_.asked_to_end ? "1" : "0"; }))
      stops |= wish == "1";
    return stops;
  }
  std::optional<accountant::History> account_after_step() const override {
    accountant::History after = history;
    after.add({kRate, kSigma, 1});
    return after;
  }

  int64_t resume(const fs::path& folder) override {
    AllOrNone all = ranks();
    Json index;
    all.run([&] {
      index = read_json_file(folder / checkpoint::kIndexName);
      for (const Json& part : index["parts"]) {
        const std::string text = read_text_file(folder / part["file"].get<std::string>(), 1 << 20);
        const uint32_t sum = crc32c(std::as_bytes(std::span(text)));
        if (sum != part["sum"].get<uint32_t>())
          throw IoError(folder.string() + ": a rank's file is damaged");
      }
      return std::string();
    });
    const auto saved = accountant::History::from_json(index["history"]);
    const accountant::History lost = history.beyond(saved);  // as Account::go_on_from does
    history = saved;
    charge(lost);
    step = index["step"].get<int64_t>();
    return step;
  }

  fs::path save(const fs::path& folder, const SaveOptions& options) override {
    wait_for_save();
    AllOrNone all(options.wait ? front_ : behind_);
    auto job = std::make_shared<Job>(Job{all, step, history, nullptr, {}, options});
    job->partial_path = folder / job->ranks.run_on_first([&] {
      job->partial = std::make_unique<PartialCheckpoint>(folder, step);
      return job->partial->path().filename().string();
    });
    if (options.wait) {
      write(*job);
      acknowledge(job->step, job->history);
      return folder;
    }
    saving_ = true;
    world_.scheduler.start(
        fmt::format("saver {}", rank_),
        [this, job, held = shared_from_this()] {
          SaveOutcome outcome;
          outcome.step = job->step;
          try {
            write(*job);
            saved_account_ = job->history;
          } catch (const std::exception& error) {
            outcome.error = error.what();
          }
          job->partial.reset();
          ended_.push_back(outcome);
          saving_ = false;
          return 0;
        },
        world_.scheduler.current().group);
    return folder;
  }

  std::vector<SaveOutcome> ended_saves() override {
    for (const SaveOutcome& outcome : ended_)
      if (outcome.error.empty()) acknowledge(outcome.step, saved_account_);
    return std::exchange(ended_, {});
  }

  void wait_for_save() {
    while (saving_) world_.scheduler.sleep(0.01);
    ended_saves();
  }

 private:
  struct Job {
    AllOrNone ranks;
    int64_t step;
    accountant::History history;
    std::unique_ptr<PartialCheckpoint> partial;
    fs::path partial_path;
    SaveOptions options;
  };

  std::string write_part(const Job& job) {
    const std::string name = fmt::format("rank{}.part", rank_);
    std::string text = fmt::format("step {} of rank {}\n", job.step, rank_);
    text.resize(700, '.');  // more than a sector
    StagedFile file(job.partial_path / name);
    file.write(text.data(), static_cast<int64_t>(text.size()));
    if (world_.defect != Defect::RankFileNotSynced) file.finish();
    file.commit();
    sync_folder(job.partial_path);
    const uint32_t sum = crc32c(std::as_bytes(std::span(text)));
    return one_line(Json{{"file", name}, {"sum", sum}});
  }

  void write(Job& job) {
    const auto make_index = [&](const std::vector<std::string>& answers) {
      Json parts = Json::array();
      for (const std::string& answer : answers) parts.push_back(parse_json(answer, "answer"));
      return checkpoint::IndexText{
          one_line(Json{
              {"step", job.step}, {"history", job.history.to_json()}, {"parts", std::move(parts)}}),
          "seal"};
    };
    const auto part = [&] { return write_part(job); };
    if (world_.defect == Defect::AcknowledgedEarly) acknowledge(job.step, job.history);
    if (world_.defect == Defect::PruneBeforePublish && rank_ == 0)
      checkpoint::prune_checkpoints(job.partial->folder(), "", 1, 0);
    if (world_.defect == Defect::PruneBeforePublish && rank_ == 0) {
      for (const std::string& name : checkpoint::checkpoints_newest_first(job.partial->folder()))
        remove_tree(job.partial->folder() / name);
    }
    if (world_.defect == Defect::IndexBeforeParts) {
      publish_before_parts(job, make_index);
      return;
    }
    checkpoint::write_in_order(job.ranks, job.partial, job.options, part, make_index);
  }

  // The order turned round: what the deliberate defect is about.
  template <class MakeIndex>
  void publish_before_parts(Job& job, const MakeIndex& make_index) {
    job.ranks.run_on_first([&] {
      std::vector<std::string> answers;
      for (int rank = 0; rank < world_.ranks; ++rank) {
        std::string text = fmt::format("step {} of rank {}\n", job.step, rank);
        text.resize(700, '.');
        answers.push_back(one_line(Json{{"file", fmt::format("rank{}.part", rank)},
                                        {"sum", crc32c(std::as_bytes(std::span(text)))}}));
      }
      job.partial->publish(make_index(answers).text);
      return std::string();
    });
    job.partial_path = fs::path(kFolder) / checkpoint::checkpoint_name(job.step);
    job.ranks.run([&] { return write_part(job); });
    job.partial.reset();
  }

  void acknowledge(int64_t saved, const accountant::History& account) {
    if (world_.scheduler.current().is_dead) return;
    world_.acknowledged = std::max(world_.acknowledged, saved);
    world_.acknowledged_account = std::max(world_.acknowledged_account, account.num_steps());
    world_.scheduler.log(fmt::format("ACKNOWLEDGED step {}", saved));
  }

  World& world_;
  int rank_;
  std::shared_ptr<SimulatedExchange> front_, behind_;
  bool saving_ = false;
  accountant::History saved_account_;
  std::vector<SaveOutcome> ended_;
};

// What a resumed run must have.
void check_resumed(World& world, const checkpoint::DurableCourse& course, double charged,
                   const std::vector<std::string>& warnings) {
  if (world.scheduler.current().is_dead) return;
  const int64_t step = course.resumed_step().value_or(0);
  if (step < world.acknowledged)
    world.fail(fmt::format("the save of step {} was acknowledged, and the run went on from step {}",
                           world.acknowledged, step));
  if (!warnings.empty())
    world.fail("a checkpoint that looks complete is not whole: " + warnings[0]);
  double truth = world.drawn;
  if (world.lost_power) {
    truth = world.acknowledged_account;
    for (const auto& [when, steps] : world.written)
      if (when + 1 <= world.written.back().first) truth = std::max(truth, steps);
  }
  if (charged < truth)
    world.fail(fmt::format("the account has {} steps, {} were done{}", charged, truth,
                           world.lost_power ? " and on the disk" : ""));
  if (world.lost_power) {
    world.drawn = charged;
    world.written = {{world.scheduler.now(), charged}};
  }
  world.lost_power = false;
}

int rank_body(World& world, int rank, int64_t start) {
  Scheduler& scheduler = world.scheduler;
  // Its threads may be unwound after it.
  const auto held = std::make_shared<SimulatedTrainer>(world, rank, start);
  SimulatedTrainer& trainer = *held;
  checkpoint::DurableOptions options;
  options.every = world.every;
  options.keep = world.keep;
  options.wait = world.waits;
  try {
    checkpoint::DurableCourse course(trainer, kFolder, options);
    if (rank == 0)
      check_resumed(world, course, trainer.history.num_steps(), course.take_warnings());
    while (trainer.step < world.last_step) {
      const auto write_account = [&] {
        course.before_step();
        if (rank == 0 && !scheduler.current().is_dead)
          world.written.emplace_back(scheduler.now(), trainer.history.num_steps() + 1);
      };
      if (world.defect != Defect::SpentAfterStep) write_account();
      trainer.ranks().run([] { return std::string(); });  // every step begins with a collective
      if (rank == 0) world.drawn = std::max(world.drawn, trainer.history.num_steps() + 1);
      scheduler.sleep(scheduler.random.between(0.01, 0.8));
      if (world.defect == Defect::SpentAfterStep) write_account();
      trainer.history.add({kRate, kSigma, 1});
      ++trainer.step;
      course.after_step(trainer.step);
      course.take_warnings();
    }
    trainer.wait_for_save();
    return 0;
  } catch (const checkpoint::Stopped&) {
    return kExitToContinue;
  } catch (const std::exception& error) {
    scheduler.log(std::string("ended: ") + error.what());
    // Threads of a process end with it, but not before they are out of its memory.
    scheduler.kill(scheduler.current().group);
    return 1;
  }
}

// The launcher: starts the ranks, ends all when one has failed, and asks Restarts.
int launcher_body(World& world, int64_t max_restarts) {
  Scheduler& scheduler = world.scheduler;
  launch::Restarts restarts({world.ranks, {}, max_restarts, 1});
  while (true) {
    const double began = scheduler.now();
    const int64_t start = restarts.done();
    world.ranks = restarts.count();
    world.groups.clear();
    world.meetings.clear();
    const bool is_calm = start >= 3;
    if (is_calm) world.disk.error_rate = 0;
    if (!is_calm && scheduler.random.chance(0.9))
      world.disk.crash_at(scheduler.random.below(200), scheduler.random.chance(0.5));
    std::vector<std::shared_ptr<Process>> ranks;
    for (int rank = 0; rank < world.ranks; ++rank) {
      ranks.push_back(scheduler.start(fmt::format("rank {}", rank), [&world, rank, start] {
        return rank_body(world, rank, start);
      }));
      world.groups.push_back(ranks.back()->group);
    }
    scheduler.log(fmt::format("start {} of {} ranks", start, world.ranks));
    launch::RanksResult result;
    bool all_ended = false;
    while (!all_ended) {
      scheduler.sleep(scheduler.random.between(0.01, 0.3));
      if (!is_calm && scheduler.random.chance(0.01)) world.asked_to_end = true;
      all_ended = true;
      for (size_t i = 0; i < ranks.size(); ++i) {
        all_ended &= ranks[i]->has_ended;
        const bool failed = ranks[i]->is_dead || (ranks[i]->has_ended && ranks[i]->exit_code != 0);
        if (!failed || result.exit_code != 0) continue;
        result.exit_code = ranks[i]->exit_code != 0 ? ranks[i]->exit_code : 137;
        result.failed_rank = static_cast<int>(i);
        if (result.exit_code != kExitToContinue) {
          for (const int64_t group : world.groups) scheduler.kill(group);
        }
      }
    }
    for (const int64_t group : world.groups) world.disk.forget_process(group);
    scheduler.log(fmt::format("the job ended with code {}", result.exit_code));
    const bool was_stopped = result.exit_code == kExitToContinue;
    if (was_stopped && world.defect == Defect::RestartAfterStop) result.exit_code = 1;
    const bool again = restarts.start_again(result, scheduler.now() - began);
    if (was_stopped && again) world.fail("a job that was asked to end was started again");
    if (again) continue;
    if (result.exit_code == 0) return 0;
    if (!was_stopped) world.fail(fmt::format("no start came to an end, the last without faults"));
    // Whoever asked it to end starts it again: a new launcher.
    world.asked_to_end = false;
    restarts = launch::Restarts({world.ranks, {}, max_restarts, 1});
    if (!world.problem.empty()) return 1;
  }
}

}  // namespace

Outcome run_durable_world(uint64_t seed, Defect defect, bool keeps_log) {
  World world(seed, defect, keeps_log);
  const DiskScope scope(world.disk);
  Random& random = world.scheduler.random;
  world.ranks = 1 + static_cast<int>(random.below(3));
  world.every = 1 + random.below(3);
  world.keep = 1 + random.below(2);
  world.last_step = 4 + random.below(8);
  world.waits = random.chance(0.3);
  if (random.chance(0.2)) world.disk.error_rate = 0.01;
  world.disk.ignores_folder_sync = defect == Defect::FolderNotSynced;
  world.disk.ignores_data_sync = defect == Defect::SpentNotSynced;
  world.disk.on_kill = [&](int64_t group) { world.scheduler.kill(group); };
  world.disk.on_power_cut = [&] {
    for (const int64_t group : world.groups) world.scheduler.kill(group);
    world.lost_power = true;
    world.disk.cut_power();
  };
  world.scheduler.on_end = [&](int64_t group) { world.disk.forget_process(group); };
  world.scheduler.after_turn = [&] { return world.problem; };
  world.scheduler.start("launcher", [&] { return launcher_body(world, 6); });
  std::string ended = world.scheduler.run(200'000);
  if (world.problem.empty()) world.problem = ended;
  return {world.problem, world.scheduler.lines(), world.scheduler.fingerprint()};
}

}  // namespace moonshard::simulation
