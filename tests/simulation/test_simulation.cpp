// Runs seeds of every world. MOONSHARD_SIMULATION_SEEDS sets how many (a small number by default),
// MOONSHARD_SIMULATION_FIRST the first of them, MOONSHARD_SIMULATION_SEED replays one and prints
// its history.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/simulation/simulation.h"

namespace moonshard::simulation {
namespace {

struct WorldEntry {
  const char* name;
  Outcome (*run)(uint64_t seed, Defect defect, bool keeps_log);
};

constexpr WorldEntry kWorlds[] = {{"durable", &run_durable_world},
                                  {"owners", &run_owners_world},
                                  {"sweep", &run_sweep_world},
                                  {"watch", &run_watch_world}};
constexpr uint64_t kNumWorlds = std::size(kWorlds);

uint64_t number_from(const char* variable, uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : fallback;
}

const WorldEntry& world_of(uint64_t seed) {
  return kWorlds[seed % kNumWorlds];
}

TEST(Simulation, NoSeedBreaksAnInvariant) {
  if (std::getenv("MOONSHARD_SIMULATION_SEED") != nullptr) {
    const uint64_t seed = number_from("MOONSHARD_SIMULATION_SEED", 0);
    const Outcome outcome = world_of(seed).run(seed, Defect::None, true);
    for (const std::string& line : outcome.lines) std::printf("%s\n", line.c_str());
    EXPECT_EQ(outcome.problem, "")
        << "seed " << seed << " of the world '" << world_of(seed).name << "'";
    return;
  }
  const uint64_t first = number_from("MOONSHARD_SIMULATION_FIRST", 0);
  const uint64_t count = number_from("MOONSHARD_SIMULATION_SEEDS", 600);
  int failures = 0;
  for (uint64_t seed = first; seed < first + count && failures < 5; ++seed) {
    const Outcome outcome = world_of(seed).run(seed, Defect::None, false);
    if (!outcome.problem.empty()) ++failures;
    EXPECT_EQ(outcome.problem, "")
        << "seed " << seed << " of the world '" << world_of(seed).name
        << "'; MOONSHARD_SIMULATION_SEED=" << seed << " prints its history";
    if ((seed - first + 1) % 100'000 == 0) {
      std::printf("%llu seeds\n", static_cast<unsigned long long>(seed - first + 1));
      std::fflush(stdout);
    }
  }
}

TEST(Simulation, ASeedHasOneHistory) {
  for (uint64_t seed = 0; seed < 4 * kNumWorlds; ++seed) {
    const Outcome one = world_of(seed).run(seed, Defect::None, true);
    const Outcome again = world_of(seed).run(seed, Defect::None, true);
    EXPECT_EQ(one.fingerprint, again.fingerprint) << "seed " << seed;
    ASSERT_EQ(one.lines.size(), again.lines.size()) << "seed " << seed;
    for (size_t i = 0; i < one.lines.size(); ++i) ASSERT_EQ(one.lines[i], again.lines[i]);
    EXPECT_FALSE(one.lines.empty());
  }
}

struct DefectEntry {
  const char* name;
  Defect defect;
  Outcome (*run)(uint64_t seed, Defect defect, bool keeps_log);
  const char* found_as;  ///< a part of what the simulation says of it
};

// A simulation that finds nothing might be one that looks at nothing.
TEST(Simulation, EveryDeliberateDefectIsFound) {
  const DefectEntry entries[] = {
      {"rank file not synced", Defect::RankFileNotSynced, &run_durable_world, "not whole"},
      {"index before parts", Defect::IndexBeforeParts, &run_durable_world, "not whole"},
      {"prune before publish", Defect::PruneBeforePublish, &run_durable_world, "was acknowledged"},
      {"folder not synced", Defect::FolderNotSynced, &run_durable_world, "was acknowledged"},
      {"acknowledged early", Defect::AcknowledgedEarly, &run_durable_world, "was acknowledged"},
      {"account after the step", Defect::SpentAfterStep, &run_durable_world, "the account has"},
      {"account not synced", Defect::SpentNotSynced, &run_durable_world, "the account has"},
      {"restart after a stop", Defect::RestartAfterStop, &run_durable_world, "started again"},
      {"lock released early", Defect::LockReleasedEarly, &run_owners_world, "owns the folder"},
      {"result not synced", Defect::ResultNotSynced, &run_sweep_world, "was acknowledged"},
      {"results folder not synced", Defect::FolderNotSynced, &run_sweep_world, ""},
      {"settled by the status word", Defect::SettledByStatusWord, &run_sweep_world, ""},
      {"judge forgets a rank", Defect::JudgeForgetsRank, &run_watch_world, "without a report"},
      {"judge has no time-out", Defect::JudgeHasNoTimeout, &run_watch_world, "without a report"},
      {"judge counts pauses", Defect::JudgeCountsPauses, &run_watch_world, "was given up"},
  };
  for (const DefectEntry& entry : entries) {
    std::string found;
    uint64_t seed = 0;
    for (; seed < 5000 && found.empty(); ++seed) {
      const std::string problem = entry.run(seed, entry.defect, false).problem;
      if (problem.find(entry.found_as) != std::string::npos) found = problem;
    }
    EXPECT_NE(found, "") << entry.name;
    std::printf("%s: seed %llu: %s\n", entry.name, static_cast<unsigned long long>(seed - 1),
                found.c_str());
  }
}

}  // namespace
}  // namespace moonshard::simulation
