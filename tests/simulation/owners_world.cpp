// Processes that want the same folder: some save checkpoints to it, some run a sweep in it. They
// are killed at any call and come again.
//   No two owners of a folder: while one holds it, nobody else does.
//   What the owner writes stays: nobody takes its partial checkpoint for a dead writer's.
//   Whoever tries long enough gets it, whatever became of the owners before.
#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/launch/file_lock.h"
#include "tests/simulation/fake_disk.h"
#include "tests/simulation/simulation.h"

namespace moonshard::simulation {
namespace {

const char* const kShared = "shared";

struct Owners {
  Owners(uint64_t seed, bool keeps_log) : scheduler(seed, keeps_log), disk(scheduler) {}

  Scheduler scheduler;
  FakeDisk disk;
  int64_t owner_of[2] = {0, 0};  ///< of checkpoints, of the sweep
  int64_t turns[2] = {0, 0};
  std::string problem;

  void take(int kind) {
    const int64_t me = scheduler.current().group;
    if (scheduler.current().is_dead) return;
    if (owner_of[kind] != 0 && scheduler.is_alive(owner_of[kind]))
      problem = fmt::format("{} owns the folder beside process {}", scheduler.current().name,
                            owner_of[kind]);
    owner_of[kind] = me;
    ++turns[kind];
    scheduler.log("OWNS the folder");
  }
  // Before the real release: from then on another may have it.
  void leave(int kind) {
    if (owner_of[kind] == scheduler.current().group) owner_of[kind] = 0;
  }
};

void save_once(Owners& world, int64_t step) {
  try {
    auto partial = std::make_unique<checkpoint::PartialCheckpoint>(kShared, step);
    world.take(0);
    for (int i = 0; i < 3; ++i) {
      StagedFile file(partial->path() / fmt::format("part{}", i));
      file.write("data", 4);
      file.finish();
      file.commit();
    }
    partial->publish("{}");
    world.leave(0);
  } catch (const UsageError&) {
    world.scheduler.log("refused: another process is saving there");
  } catch (const IoError& error) {
    if (!world.scheduler.current().is_dead && world.problem.empty())
      world.problem = std::string("an owner's file is gone: ") + error.what();
  }
}

void sweep_once(Owners& world) {
  std::string holder;
  const std::string text = fmt::format("process {}", world.scheduler.current().group);
  auto lock =
      launch::FileLock::try_take(std::filesystem::path(kShared) / ".sweep.lock", text, holder);
  if (!lock) {
    world.scheduler.log("refused: a sweep is at work in it");
    return;
  }
  world.take(1);
  world.scheduler.sleep(world.scheduler.random.between(0, 0.02));
  world.leave(1);
}

int contender(Owners& world, int kind, int64_t number) {
  try {
    for (int turn = 0; turn < 4; ++turn) {
      world.scheduler.sleep(world.scheduler.random.between(0, 0.02));
      kind == 0 ? save_once(world, number * 10 + turn) : sweep_once(world);
    }
  } catch (const IoError&) {
    if (!world.scheduler.current().is_dead && world.problem.empty()) throw;
  }
  return 0;
}

}  // namespace

Outcome run_owners_world(uint64_t seed, Defect defect, bool keeps_log) {
  Owners world(seed, keeps_log);
  const DiskScope scope(world.disk);
  Random& random = world.scheduler.random;
  world.disk.forgets_locks = defect == Defect::LockReleasedEarly;
  world.disk.on_kill = [&](int64_t group) {
    world.scheduler.kill(group);
    world.disk.forget_process(group);
  };
  world.disk.on_power_cut = [] {};
  world.scheduler.on_end = [&](int64_t group) { world.disk.forget_process(group); };
  world.scheduler.after_turn = [&] { return world.problem; };
  create_private_folders(kShared);
  const int64_t contenders = 2 + random.below(3);
  for (int64_t number = 0; number < contenders; ++number) {
    const auto kind = static_cast<int>(random.below(2));
    world.scheduler.start(fmt::format("{} {}", kind == 0 ? "saver" : "sweep", number),
                          [&world, kind, number] { return contender(world, kind, number); });
  }
  world.scheduler.start("fate", [&world] {
    Scheduler& scheduler = world.scheduler;
    for (int i = 0; i < 3; ++i) {
      scheduler.sleep(scheduler.random.between(0, 0.03));
      world.disk.crash_at(scheduler.random.below(40), false);
    }
    scheduler.sleep(10);
    world.disk.crash_at(-1, false);
    // All others have ended: both are free.
    save_once(world, 1000);
    sweep_once(world);
    return 0;
  });
  std::string ended = world.scheduler.run(100'000);
  if (world.problem.empty()) world.problem = ended;
  if (world.problem.empty() && (world.turns[0] == 0 || world.turns[1] == 0))
    world.problem = "a folder without an owner was refused";
  return {world.problem, world.scheduler.lines(), world.scheduler.fingerprint()};
}

}  // namespace moonshard::simulation
