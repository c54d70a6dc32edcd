// Ranks on one or two machines in collective after collective, each with its watch, and the board
// between them over a network that delays, reorders and cuts. One rank dies, hangs, fails, ends
// early or calls something else; or all are stopped for a while, or the network is
// cut for a while.
//   Every hang is named: whoever waits for a rank that never comes ends within the time-out with a
//   report that names such a rank, and within seconds where the rank is known to be gone.
//   Nothing else is given up: delays, a short cut and a pause of all end no job.
#include <map>
#include <set>

#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/comm/watch.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/simulation.h"

namespace moonshard::simulation {
namespace {

using comm::Life;
using comm::RankState;

constexpr double kTimeout = 40, kTick = 0.25, kInterval = 0.5;
constexpr double kSoon = 15;  ///< in which a rank that is known to be gone must be named

enum class Fault { None, Dies, Hangs, Fails, EndsEarly, Differs, AllPause, ShortCut };
const char* const kFaultNames[] = {"none",       "dies",    "hangs",     "fails",
                                   "ends early", "differs", "all pause", "short cut"};

struct RankThere {
  int64_t group = 0;
  int machine = 0;
  bool has_report = false, has_finished = false;
  double waits_since = -1;  ///< in the collective that cannot end
};

struct WatchWorld {
  WatchWorld(uint64_t seed, Defect kind, bool keeps_log)
      : scheduler(seed, keeps_log), defect(kind) {}

  Scheduler scheduler;
  Defect defect;
  std::string problem;
  Fault fault = Fault::None;
  int faulty = 0;
  int64_t faulty_at = 1, collectives = 4;
  double fault_time = -1, cut_from = -1, cut_until = -1;
  std::vector<RankThere> ranks;
  std::map<std::string, std::string> texts;              ///< of the board
  std::map<int64_t, std::map<int, std::string>> joined;  ///< what each rank called, by number

  void fail(const std::string& text) {
    if (problem.empty()) problem = text;
    scheduler.log("BROKEN: " + text);
  }
  bool is_cut() const { return scheduler.now() >= cut_from && scheduler.now() < cut_until; }
  bool is_done(int64_t number) const {
    const auto found = joined.find(number);
    if (found == joined.end() || found->second.size() < ranks.size() || is_cut()) return false;
    for (const auto& [rank, called] : found->second)
      if (called != found->second.begin()->second) return false;
    return true;
  }
  Life look(const comm::ProcessIdentity& process, int from_machine) const {
    for (const RankThere& rank : ranks) {
      if (rank.group != process.pid) continue;
      if (rank.machine != from_machine) return Life::Unknown;
      return scheduler.is_alive(rank.group) ? Life::Alive : Life::Gone;
    }
    return Life::Unknown;
  }
};

// On machine 0, with the launcher.
class SimulatedBoard final : public comm::Board {
 public:
  SimulatedBoard(WatchWorld& world, int machine) : world_(world), machine_(machine) {}

  void post(const std::string& key, const std::string& text) override {
    travel();
    world_.texts[key] = text;
    travel();
  }
  std::optional<std::string> read(const std::string& key) override {
    const auto found = world_.texts.find(key);
    return found != world_.texts.end() ? std::optional(found->second) : std::nullopt;
  }
  std::vector<std::optional<std::string>> read_all(const std::vector<std::string>& keys) override {
    travel();
    auto texts = Board::read_all(keys);
    travel();
    return texts;
  }

 private:
  void travel() {
    Scheduler& scheduler = world_.scheduler;
    scheduler.sleep(scheduler.random.between(0, 0.02));
    // What is lost on the way is sent again.
    if (scheduler.random.chance(0.02)) scheduler.sleep(scheduler.random.between(0.2, 1.5));
    if (machine_ == 0) return;
    const double began = scheduler.now();
    while (world_.is_cut()) {
      scheduler.sleep(0.2);
      if (scheduler.now() - began > 20) throw IoError("board: no answer");
    }
  }
  WatchWorld& world_;
  int machine_;
};

// One rank's watchdog: its two threads are two fibers.
class SimulatedWatchdog {
 public:
  SimulatedWatchdog(WatchWorld& world, int rank)
      : world_(world),
        rank_(rank),
        board_(world, world.ranks[static_cast<size_t>(rank)].machine),
        watch_(rank, static_cast<int>(world.ranks.size()),
               world.defect == Defect::JudgeHasNoTimeout ? 1e9 : kTimeout,
               [this](const comm::ProcessIdentity& process) {
                 return world_.look(process, world_.ranks[static_cast<size_t>(rank_)].machine);
               }) {}

  comm::Watch& watch() { return watch_; }
  bool is_over = false;
  bool stop = false;

  void exchange() {
    const int64_t posting = watch_.version();
    const int64_t looks = looks_asked_;
    const std::string text = to_text(watch_.pulse({world_.scheduler.current().group, 1, "m"}));
    std::string trouble;
    try {
      board_.post(comm::pulse_key(rank_), text);
      std::vector<std::string> keys;
      for (int rank = 0; rank < watch_.world(); ++rank)
        keys.insert(keys.end(), {comm::pulse_key(rank), comm::end_key(rank), comm::gone_key(rank)});
      const auto texts = board_.read_all(keys);
      for (int rank = 0; rank < watch_.world(); ++rank) {
        const bool forgets = world_.defect == Defect::JudgeForgetsRank && rank == world_.faulty;
        if (rank == rank_ || forgets) continue;
        const auto at = static_cast<size_t>(rank) * 3;
        comm::Sighting seen = watch_.see(texts[at], texts[at + 1], texts[at + 2]);
        if (comm::Watch::must_tell(seen)) board_.post(comm::gone_key(rank), "its process is gone");
        watch_.keep(rank, std::move(seen));
      }
    } catch (const IoError& error) {
      trouble = error.what();
      watch_.look_without_board(board_);
    }
    watch_.note_board(trouble);
    if (trouble.empty()) {
      posted_ = posting;
      looks_done_ = looks;
    }
  }

  void run_messenger() {
    double last = -1;
    while (!stop || posted_ < watch_.version()) {
      Scheduler& scheduler = world_.scheduler;
      if (scheduler.now() - last >= kInterval || posted_ < watch_.version() ||
          looks_done_ < looks_asked_ || watch_.must_look()) {
        last = scheduler.now();
        exchange();
      }
      scheduler.sleep(kTick);
    }
  }

  void run_judge() {
    Scheduler& scheduler = world_.scheduler;
    double last = scheduler.now();
    while (!stop && !is_over) {
      scheduler.sleep(kTick);
      const double most = world_.defect == Defect::JudgeCountsPauses ? 1e9 : 3 * kTick;
      watch_.advance(scheduler.now() - last, most);
      last = scheduler.now();
      drop_what_is_done();
      const auto entry = watch_.suspect();
      if (entry == nullptr) continue;
      const int64_t wanted = ++looks_asked_;
      scheduler.wait_for([&] { return looks_done_ >= wanted; }, 1.0);
      drop_what_is_done();
      if (stop || entry->collective.is_done) continue;
      const std::string why = watch_.why_unfinishable(*entry);
      if (why.empty()) continue;
      const comm::Report report = watch_.report(why, entry->collective, watch_.board_error());
      watch_.change_state(RankState::GaveUp, report.text);
      const int64_t version = watch_.version();
      scheduler.wait_for([&] { return posted_ >= version; }, 1.0);
      end_with(report);
    }
  }

  void wait_until_posted() {
    const int64_t version = watch_.version();
    world_.scheduler.wait_for([&] { return posted_ >= version; }, 2.0);
  }

 private:
  void drop_what_is_done() {
    for (const auto& entry : watch_.open())
      if (world_.is_done(entry->collective.number)) watch_.note_done(*entry);
    watch_.trim();
  }

  void end_with(const comm::Report& report) {
    is_over = true;
    RankThere& own = world_.ranks[static_cast<size_t>(rank_)];
    own.has_report = true;
    world_.scheduler.log(report.text);
    const bool is_real = world_.fault_time >= 0 && world_.fault != Fault::AllPause &&
                         world_.fault != Fault::ShortCut;
    if (!is_real) {
      world_.fail("a job without a missing rank was given up: " + report.text);
      return;
    }
    // Who calls something else than the others is one side of two.
    bool names_one = world_.fault == Fault::Differs && !report.missing.empty();
    for (const int rank : report.missing) names_one |= rank == world_.faulty;
    // One that gave up and ended before the board had its last words looks like a dead one. The
    // report then has a line of the cause as well.
    const bool has_line =
        report.text.find(fmt::format("\n  rank {}: ", world_.faulty)) != std::string::npos;
    bool blames_survivors = has_line;
    for (const int rank : report.missing)
      blames_survivors &= world_.ranks[static_cast<size_t>(rank)].has_report;
    names_one |= blames_survivors;
    if (rank_ != world_.faulty && !names_one)
      world_.fail(fmt::format("rank {} {}, and the report does not name it: {}", world_.faulty,
                              kFaultNames[static_cast<int>(world_.fault)], report.text));
  }

  WatchWorld& world_;
  int rank_;
  SimulatedBoard board_;
  comm::Watch watch_;
  int64_t posted_ = -1, looks_asked_ = 0, looks_done_ = 0;
};

// Returns false when the process ends here.
bool suffer(WatchWorld& world, SimulatedWatchdog& watchdog) {
  Scheduler& scheduler = world.scheduler;
  world.fault_time = scheduler.now();
  scheduler.log(std::string("FAULT: ") + kFaultNames[static_cast<int>(world.fault)]);
  switch (world.fault) {
    case Fault::Dies:
      scheduler.kill(scheduler.current().group);
      throw Killed();
    case Fault::Hangs:
      scheduler.sleep(1e5);
      return false;
    case Fault::Fails:
      watchdog.watch().change_state(RankState::Failed, "an error of its own");
      watchdog.wait_until_posted();
      return false;
    case Fault::EndsEarly:
      watchdog.watch().change_state(RankState::Finished, "");
      watchdog.wait_until_posted();
      return false;
    default:
      return true;
  }
}

int watched_rank(WatchWorld& world, int rank) {
  Scheduler& scheduler = world.scheduler;
  const int64_t group = scheduler.current().group;
  RankThere& own = world.ranks[static_cast<size_t>(rank)];
  const auto watchdog = std::make_shared<SimulatedWatchdog>(world, rank);
  const auto run = [&](const char* name, auto method) {
    scheduler.start(
        fmt::format("{} {}", name, rank),
        [watchdog, method] {
          (watchdog.get()->*method)();
          return 0;
        },
        group);
  };
  run("messenger", &SimulatedWatchdog::run_messenger);
  run("judge", &SimulatedWatchdog::run_judge);
  for (int64_t number = 1; number <= world.collectives; ++number) {
    scheduler.sleep(scheduler.random.between(0, scheduler.random.chance(0.2) ? 6.0 : 1.0));
    const bool is_faulty = rank == world.faulty && number == world.faulty_at;
    if (is_faulty && !suffer(world, *watchdog)) return 1;
    const bool differs = is_faulty && world.fault == Fault::Differs;
    const std::string called = differs ? "barrier" : "all_reduce";
    const auto entry = watchdog->watch().begin(called, "", nullptr);
    world.joined[number][rank] = called;
    own.waits_since = scheduler.now();
    while (!world.is_done(number)) {
      scheduler.sleep(0.1);
      if (watchdog->is_over) return 1;
    }
    own.waits_since = -1;
    if (entry->is_open()) watchdog->watch().note_done(*entry);
  }
  watchdog->watch().change_state(RankState::Finished, "");
  watchdog->wait_until_posted();
  watchdog->stop = true;
  own.has_finished = true;
  return 0;
}

// Posts how ranks ended, as the launcher does; and is the judge of the judges.
int observer(WatchWorld& world) {
  Scheduler& scheduler = world.scheduler;
  SimulatedBoard board(world, 0);
  std::set<size_t> posted;
  const bool pauses = world.fault == Fault::AllPause || world.fault == Fault::ShortCut;
  const double pause_at = scheduler.random.between(0, 5);
  while (posted.size() < world.ranks.size()) {
    scheduler.sleep(0.2);
    if (pauses && world.fault_time < 0 && scheduler.now() >= pause_at) {
      world.fault_time = scheduler.now();
      if (world.fault == Fault::AllPause) {
        scheduler.log("all are stopped");
        scheduler.freeze(true);
        scheduler.sleep(scheduler.random.between(1, 100));
        scheduler.freeze(false);
        scheduler.log("all go on");
      } else {
        world.cut_from = scheduler.now();
        world.cut_until = scheduler.now() + scheduler.random.between(0.5, 12);
      }
    }
    for (size_t i = 0; i < world.ranks.size(); ++i) {
      const RankThere& rank = world.ranks[i];
      if (!posted.contains(i) && !scheduler.is_alive(rank.group)) {
        posted.insert(i);
        board.post(comm::end_key(static_cast<int>(i)), "signal 9 (Killed)");
      }
      const bool is_known = world.fault == Fault::Dies || world.fault == Fault::Fails ||
                            world.fault == Fault::EndsEarly;
      if (world.fault_time < 0 || pauses || !scheduler.is_alive(rank.group) ||
          static_cast<int>(i) == world.faulty || rank.waits_since < 0)
        continue;
      const double waited = scheduler.now() - std::max(world.fault_time, rank.waits_since);
      if (waited > (is_known ? kSoon : kTimeout + 10))
        world.fail(fmt::format("rank {} waits for {:.0f} s for rank {}, which {}, without a report",
                               i, waited, world.faulty,
                               kFaultNames[static_cast<int>(world.fault)]));
    }
    // One that hangs is ended when all others have reported.
    if (posted.size() + 1 == world.ranks.size() && world.fault == Fault::Hangs)
      scheduler.kill(world.ranks[static_cast<size_t>(world.faulty)].group);
    if (scheduler.now() > 400) world.fail("the job hangs without a word");
    if (!world.problem.empty()) return 1;
  }
  if (world.fault == Fault::None || pauses) {
    for (size_t i = 0; i < world.ranks.size(); ++i)
      if (!world.ranks[i].has_finished) world.fail(fmt::format("rank {} has not finished", i));
  }
  return 0;
}

}  // namespace

Outcome run_watch_world(uint64_t seed, Defect defect, bool keeps_log) {
  WatchWorld world(seed, defect, keeps_log);
  Random& random = world.scheduler.random;
  const int64_t count = 2 + random.below(3);
  const Fault faults[] = {Fault::None,      Fault::Dies,    Fault::Hangs,    Fault::Fails,
                          Fault::EndsEarly, Fault::Differs, Fault::AllPause, Fault::ShortCut};
  world.fault = faults[random.below(std::ssize(faults))];
  world.faulty = static_cast<int>(random.below(count));
  world.faulty_at = 1 + random.below(world.collectives);
  world.scheduler.after_turn = [&] { return world.problem; };
  const bool has_two_machines = random.chance(0.5);
  world.ranks.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < world.ranks.size(); ++i)
    world.ranks[i].machine = has_two_machines ? static_cast<int>(i % 2) : 0;
  world.scheduler.start("launcher", [&] { return observer(world); })->cannot_freeze = true;
  for (int64_t rank = 0; rank < count; ++rank) {
    const auto process = world.scheduler.start(fmt::format("rank {}", rank), [&world, rank] {
      return watched_rank(world, static_cast<int>(rank));
    });
    world.ranks[static_cast<size_t>(rank)].group = process->group;
  }
  std::string ended = world.scheduler.run(1'000'000);
  if (world.problem.empty()) world.problem = ended;
  return {world.problem, world.scheduler.lines(), world.scheduler.fingerprint()};
}

}  // namespace moonshard::simulation
