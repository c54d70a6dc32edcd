// The files of a sweep: a parent that runs points one after another, each in a process of its own
// that writes its record (scripts/moonshard/sweep/runner.lua has the same calls in the same order).
// Parent and children are killed at any call, or the machine loses power; the sweep is resumed.
//   Nothing acknowledged is lost: a record that its process has written is there, whole and the
//   same, and its point does not run again.
//   What the table says of a point is what its record says.
//   A sweep without faults comes to its end, with every point done.
#include <map>

#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/launch/file_lock.h"
#include "runtime/records/reader.h"
#include "runtime/records/run_table.h"
#include "runtime/records/writer.h"
#include "tests/simulation/fake_disk.h"
#include "tests/simulation/simulation.h"

namespace moonshard::simulation {
namespace {

namespace fs = std::filesystem;
using records::RunFolderWriter;

const char* const kIds[] = {"aa", "bb", "cc"};

struct SweepWorld {
  SweepWorld(uint64_t seed, Defect kind, bool keeps_log)
      : scheduler(seed, keeps_log), disk(scheduler), defect(kind) {}

  Scheduler scheduler;
  FakeDisk disk;
  Defect defect;
  std::string problem;
  fs::path folder;
  bool has_plan = false;                        ///< the parent has finished sweep.json
  std::map<std::string, int64_t> acknowledged;  ///< number in the record, by point
  int64_t next_number = 1, points = 2;

  void fail(const std::string& text) {
    if (problem.empty()) problem = text;
    scheduler.log("BROKEN: " + text);
  }
};

int child_body(SweepWorld& world, const std::string& id, bool succeeds) {
  const int64_t number = world.next_number++;
  world.scheduler.sleep(world.scheduler.random.between(0, 0.3));
  const Json record{{"schema_version", 1},
                    {"id", id},
                    {"status", succeeds ? "ok" : "failed"},
                    {"options", {{"mode", id}}},
                    {"metrics", {{"number", number}}}};
  try {
    RunFolderWriter::attach(world.folder).write_result(id, record);
  } catch (const IoError&) {
    return 1;
  }
  if (succeeds && !world.scheduler.current().is_dead) {
    world.acknowledged[id] = number;
    world.scheduler.log(fmt::format("ACKNOWLEDGED {} of {}", number, id));
  }
  return 0;
}

void check_acknowledged(SweepWorld& world, const records::RunTable& table) {
  if (world.scheduler.current().is_dead) return;
  for (const auto& [id, number] : world.acknowledged) {
    const records::PointRecord record = records::load_point(world.folder, id);
    const auto [status, has_record] = table.status(*table.find(id));
    if (world.scheduler.current().is_dead) return;
    if (!record.has_record || record.status != "ok" ||
        record.metrics.value("number", int64_t{0}) != number)
      world.fail(fmt::format("record {} of point {} was acknowledged, got '{}'", number, id,
                             record.status));
    if (status != record.status || has_record != record.has_record)
      world.fail(fmt::format("the table has '{}' of point {}, its record '{}'", status, id,
                             record.status));
  }
}

// One attempt, as runner.lua makes it.
void run_point(SweepWorld& world, RunFolderWriter& writer, const std::string& id, bool is_calm) {
  Scheduler& scheduler = world.scheduler;
  if (world.acknowledged.contains(id) && !scheduler.current().is_dead)
    world.fail(fmt::format("point {} runs again, though its record was acknowledged", id));
  writer.remove_result(id);
  writer.write_status(id, "running");
  const bool succeeds = is_calm || scheduler.random.chance(0.8);
  const auto child = scheduler.start(
      "point " + id, [&world, id, succeeds] { return child_body(world, id, succeeds); });
  const int64_t parent = scheduler.current().group;
  // The child dies with its parent.
  scheduler.start("guard", [&world, parent, group = child->group] {
    while (world.scheduler.is_alive(group)) {
      if (!world.scheduler.is_alive(parent)) world.scheduler.kill(group);
      world.scheduler.sleep(0.001);
    }
    return 0;
  });
  while (!child->has_ended) scheduler.sleep(scheduler.random.between(0.01, 0.1));
  records::PointRecord record = records::load_point(world.folder, id);
  if (!record.has_record) {
    writer.write_result(id, {{"schema_version", 1},
                             {"id", id},
                             {"status", "failed"},
                             {"options", {{"mode", id}}},
                             {"error", "killed"}});
    record = records::load_point(world.folder, id);
  }
  writer.write_status(id, record.status);
  writer.update_index(id);
}

RunFolderWriter open_or_create(SweepWorld& world) {
  if (world.has_plan) return RunFolderWriter::open(world.folder);
  RunFolderWriter writer = RunFolderWriter::create("results", "sim");
  world.folder = writer.path();
  std::vector<records::PlannedPoint> points;
  for (int64_t i = 0; i < world.points; ++i)
    points.push_back({kIds[i], {{"mode", kIds[i]}}, "", Json::object()});
  writer.write_sweep("sim", Json::object(), {"mode"}, points);
  if (!world.scheduler.current().is_dead) world.has_plan = true;
  return writer;
}

int parent_body(SweepWorld& world, bool is_calm) {
  try {
    std::string holder;
    std::optional<launch::FileLock> lock;
    if (world.has_plan) lock = launch::FileLock::try_take(world.folder / ".lock", "me", holder);
    if (world.has_plan && !lock) {
      world.fail("a sweep whose parent is dead is locked");
      return 1;
    }
    RunFolderWriter writer = open_or_create(world);
    {
      const records::RunTable table(world.folder);
      check_acknowledged(world, table);
      for (int64_t i = 0; i < world.points; ++i) {
        const auto [status, has_record] = table.status(*table.find(kIds[i]));
        const bool by_word = world.defect == Defect::SettledByStatusWord;
        const std::string word = by_word ? records::status_word(world.folder, kIds[i]) : status;
        if (by_word && word != "ok" && word != "running" && !word.empty()) continue;
        if (status == "ok" && has_record && !by_word) continue;
        if (by_word && word == "ok") continue;
        run_point(world, writer, kIds[i], is_calm);
      }
    }
    writer.write_index();
    check_acknowledged(world, records::RunTable(world.folder));
    return 0;
  } catch (const Error& error) {
    if (is_calm && !world.scheduler.current().is_dead) world.fail(error.what());
    return 1;
  }
}

int fate(SweepWorld& world) {
  Scheduler& scheduler = world.scheduler;
  for (int start = 0; start < 5; ++start) {
    const bool is_calm = start == 4;
    if (is_calm) world.disk.error_rate = 0;
    if (scheduler.random.chance(0.3)) world.disk.clock_jump = scheduler.random.between(-3600, 3600);
    world.disk.crash_at(is_calm ? -1 : scheduler.random.below(150), scheduler.random.chance(0.5));
    const auto parent =
        scheduler.start("parent", [&world, is_calm] { return parent_body(world, is_calm); });
    while (!parent->has_ended) scheduler.sleep(0.1);
    scheduler.sleep(1);
  }
  for (int64_t i = 0; i < world.points; ++i)
    if (records::load_point(world.folder, kIds[i]).status != "ok")
      world.fail(fmt::format("the sweep has ended, and point {} has no record", kIds[i]));
  return 0;
}

}  // namespace

Outcome run_sweep_world(uint64_t seed, Defect defect, bool keeps_log) {
  SweepWorld world(seed, defect, keeps_log);
  const DiskScope scope(world.disk);
  world.points = 1 + world.scheduler.random.below(3);
  if (world.scheduler.random.chance(0.2)) world.disk.error_rate = 0.005;
  world.disk.ignores_file_sync = defect == Defect::ResultNotSynced;
  world.disk.ignores_folder_sync = defect == Defect::FolderNotSynced;
  int64_t observer = 0;
  world.disk.on_kill = [&](int64_t group) { world.scheduler.kill(group); };
  world.disk.on_power_cut = [&] {
    for (int64_t group = 1; group < 1000; ++group)
      if (group != observer) world.scheduler.kill(group);
    world.disk.cut_power();
  };
  world.scheduler.on_end = [&](int64_t group) { world.disk.forget_process(group); };
  world.scheduler.after_turn = [&] { return world.problem; };
  observer = world.scheduler.start("fate", [&] { return fate(world); })->group;
  std::string ended = world.scheduler.run(200'000);
  if (world.problem.empty()) world.problem = ended;
  return {world.problem, world.scheduler.lines(), world.scheduler.fingerprint()};
}

}  // namespace moonshard::simulation
