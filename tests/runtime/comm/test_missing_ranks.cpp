// What a rank concludes from what it has seen of the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/missing_ranks.h"

namespace moonshard::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Sighting seen_elsewhere(double silent_s) {
  Sighting sighting;
  sighting.pulse.emplace();
  sighting.pulse->started = 4;
  sighting.pulse->recent = {{4, "barrier", "", true}};
  sighting.silent_s = silent_s;
  return sighting;
}

TEST(MissingRanks, SilenceOnAnotherMachineIsDeathAfterAWhile) {
  const Collective collective{5, "barrier", "", false};
  EXPECT_EQ(judge(collective, seen_elsewhere(1)).absence, Absence::Behind);
  const Verdict doubtful = judge(collective, seen_elsewhere(4));
  EXPECT_EQ(doubtful.absence, Absence::Silent);
  EXPECT_FALSE(doubtful.is_certain);
  // As long as TCP may need after a network was cut for 12 s.
  EXPECT_FALSE(judge(collective, seen_elsewhere(26)).is_certain);
  EXPECT_TRUE(judge(collective, seen_elsewhere(31)).is_certain);
  EXPECT_THAT(judge(collective, seen_elsewhere(31)).text, HasSubstr("no sign of life for 31.0 s"));
  // One that had come to the collective is less to blame than one that has not.
  Sighting here = seen_elsewhere(3);
  here.pulse->started = collective.number;
  here.pulse->recent = {collective};
  EXPECT_EQ(judge(collective, here).absence, Absence::Quiet);
  here.silent_s = 31;
  EXPECT_EQ(judge(collective, here).absence, Absence::Silent);
}

TEST(MissingRanks, SilenceOfALivingNeighbourIsNotDeath) {
  Sighting busy = seen_elsewhere(100);
  busy.life = Life::Alive;
  EXPECT_FALSE(judge({5, "barrier", "", false}, busy).is_certain);
}

// When all wait in vain all time out together: who gave up first must not hide who was wrong.
TEST(MissingRanks, WhoCalledSomethingElseIsNamedThoughItGaveUp) {
  std::vector<Sighting> sightings(3, seen_elsewhere(0));
  for (Sighting& each : sightings) {
    each.pulse->state = RankState::GaveUp;
    each.pulse->started = 5;
  }
  sightings[0].pulse->recent = {{5, "all_gather", "weights", false}};
  sightings[1].pulse->recent = {{5, "barrier", "", false}};
  const Report report = report_missing("headline", {5, "barrier", "", false}, 2, sightings, "");
  EXPECT_EQ(report.missing, std::vector<int>{0});
  EXPECT_THAT(report.text, AllOf(HasSubstr("rank 0 is missing: called something else, and gave up"),
                                 HasSubstr("collective 5 (all_gather of 'weights')"),
                                 HasSubstr("rank 1: gave up")));
}

// Two ranks wait for a stopped one: that the first of them is gone by now must not hide it.
TEST(MissingRanks, AStoppedRankIsMissingThoughOthersAreGone) {
  std::vector<Sighting> sightings(3, seen_elsewhere(0));
  sightings[0].pulse->started = 5;
  sightings[0].life = Life::Gone;
  sightings[1].pulse->started = 4;
  sightings[1].life = Life::Stopped;
  const Report report = report_missing("headline", {5, "barrier", "", false}, 2, sightings, "");
  EXPECT_EQ(report.missing, (std::vector<int>{0, 1}));
  EXPECT_THAT(report.text,
              AllOf(HasSubstr("rank 1 is missing: its process"), HasSubstr("is stopped (SIGSTOP")));
}

// Rank 0 hosted the board and was killed; rank 1 ended after it, rank 2 was never looked at.
TEST(MissingRanks, WithoutTheBoardOnlyItsHostIsBlamed) {
  std::vector<Sighting> sightings(4);
  for (Sighting& each : sightings) each.lost_with = "rank 0";
  sightings[0].hosted_board = true;
  for (const size_t seen : {0, 1}) {
    sightings[seen].pulse.emplace();
    sightings[seen].life = Life::Gone;
  }
  sightings[1].ended_after_board = true;
  const Report report = report_missing("headline", {5, "barrier", "", false}, 3, sightings, "gone");
  EXPECT_EQ(report.missing, std::vector<int>{0});
  EXPECT_THAT(report.text, AllOf(HasSubstr("rank 0 is missing: its process is gone"),
                                 HasSubstr("rank 1: unknown: the board is lost with rank 0; its "
                                           "process has ended since"),
                                 HasSubstr("rank 2: unknown: the board is lost with rank 0; not "
                                           "seen before"),
                                 Not(HasSubstr("has not joined"))));
  // A host on another machine cannot be looked at.
  sightings[0].life = Life::Unknown;
  EXPECT_EQ(report_missing("headline", {}, 3, sightings, "gone").missing, std::vector<int>{0});
  // What was seen to be gone before the board was lost is a cause.
  sightings[1].ended_after_board = false;
  EXPECT_EQ(report_missing("headline", {}, 3, sightings, "gone").missing, std::vector<int>{1});
}

TEST(MissingRanks, ManyRanksAreListedShortly) {
  std::vector<Sighting> all(9, seen_elsewhere(0));
  all[3].pulse->started = 2;
  const Report report = report_missing("headline", {4, "barrier", "", false}, 8, all, "");
  EXPECT_EQ(report.missing, std::vector<int>{3});
  EXPECT_THAT(report.text, AllOf(HasSubstr("headline\n  rank 3 is missing"),
                                 HasSubstr("\n  ranks 0-2, 4-7 took part")));
}

}  // namespace
}  // namespace moonshard::comm
