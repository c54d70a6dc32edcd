// The watchdog with ranks that are threads on a board in memory, and, for those that are killed and
// stopped, with ranks that are processes on a board in a folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <thread>

#include "runtime/comm/pulse.h"
#include "runtime/comm/watchdog.h"
#include "runtime/launch/process.h"
#include "tests/runtime/comm/boards.h"
#include "tests/runtime/launch/child_modes.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

// A watchdog whose fatal report can be waited for.
class Guarded {
 public:
  Guarded(std::shared_ptr<Board> board, int rank, int world, double timeout_s = 60,
          double interval_s = 0.05) {
    WatchdogOptions options;
    options.rank = rank;
    options.world = world;
    options.timeout_s = timeout_s;
    options.interval_s = interval_s;
    options.on_fatal = [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      report_ = text;
      came_.notify_all();
    };
    watchdog_ = std::make_unique<Watchdog>(std::move(board), options);
  }

  Watchdog* operator->() { return watchdog_.get(); }
  void finish() { watchdog_.reset(); }

  int64_t begin_for_ever(const char* operation, const char* about = "") {
    return watchdog_->begin(operation, about, [] { return false; });
  }
  int64_t pass(const char* operation, const char* about = "") {
    const int64_t number = begin_for_ever(operation, about);
    watchdog_->end(number);
    return number;
  }
  /// Empty when none comes in time.
  std::string report(std::chrono::milliseconds most = 30s) {
    std::unique_lock lock(mutex_);
    came_.wait_for(lock, most, [&] { return !report_.empty(); });
    return report_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::string report_;
  std::unique_ptr<Watchdog> watchdog_;
};

template <class Condition>
bool comes_true(Condition condition, std::chrono::milliseconds most = 20s) {
  const auto deadline = std::chrono::steady_clock::now() + most;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

// os.exit in a script: destructors run while the watchdog's thread still looks at other ranks.
TEST(Watchdog, LooksAtProcessesUntilItsOwnHasEnded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process, which has not looked yet
  EXPECT_EXIT(
      {
        static const auto end = [] {
          // Takes the place of what destructors have given back.
          for (size_t size = 40; size < 120; ++size) (new std::string(size, 'x'))->back() = 'y';
          ::_exit(look_at(this_process()) == Life::Alive ? 0 : 1);
        };
        std::atexit(end);
        look_at(this_process());
        std::exit(2);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Watchdog, NumbersCollectivesFromOne) {
  Guarded rank(std::make_shared<MemoryBoard>(), 0, 1);
  EXPECT_EQ(rank.pass("barrier"), 1);
  EXPECT_EQ(rank.pass("all_reduce", "norms"), 2);
}

TEST(Watchdog, WhatIsDoneIsDroppedWithAllItHolds) {
  Guarded rank(std::make_shared<MemoryBoard>(), 0, 1);
  auto polled = std::make_shared<int>(0), told = std::make_shared<int>(0);
  std::atomic<bool> is_done{false};
  rank->begin("all_gather", "unit", [polled, &is_done] { return is_done.load(); });
  const int64_t number = rank->begin("all_gather", "unit", [told] { return false; });
  rank->end(number);
  EXPECT_TRUE(comes_true([&] { return told.use_count() == 1; }));
  EXPECT_EQ(polled.use_count(), 2);
  is_done = true;
  EXPECT_TRUE(comes_true([&] { return polled.use_count() == 1; }));
}

TEST(Watchdog, ARankThatComputesForLongIsNoFault) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 2, 0.3), second(board, 1, 2, 0.3);
  first.pass("barrier");
  second.pass("barrier");
  EXPECT_EQ(first.report(1500ms), "");
  EXPECT_EQ(second.report(1ms), "");
}

TEST(Watchdog, ASkippedCollectiveNamesRankOperationAndNumber) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 3, 1), second(board, 1, 3), third(board, 2, 3);
  for (Guarded* rank : {&first, &second, &third}) rank->pass("barrier");
  first.begin_for_ever("all_reduce", "norms");
  third.begin_for_ever("all_reduce", "norms");
  EXPECT_THAT(
      first.report(),
      AllOf(HasSubstr("rank 0: collective 2 (all_reduce of 'norms') has not ended after 1."),
            HasSubstr("MOONSHARD_TIMEOUT"),
            HasSubstr("rank 1 is missing: has not come: it is after collective 1 (barrier)"),
            HasSubstr("rank 2 took part")));
}

TEST(Watchdog, ADifferentCollectiveOfTheSameNumberIsNamed) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 2, 1), second(board, 1, 2);
  first.begin_for_ever("all_reduce", "norms");
  second.begin_for_ever("all_gather", "block.3");
  second.begin_for_ever("all_reduce", "norms");
  EXPECT_THAT(first.report(),
              AllOf(HasSubstr("collective 1 (all_reduce of 'norms')"),
                    HasSubstr("rank 1 is missing: called something else: its collective 1 "
                              "(all_gather of 'block.3')"),
                    HasSubstr("the same order")));
}

TEST(Watchdog, ARankThatNeverJoinedIsNamed) {
  Guarded first(std::make_shared<MemoryBoard>(), 0, 2, 0.5);
  first.begin_for_ever("barrier", "start");
  EXPECT_THAT(first.report(), HasSubstr("rank 1 is missing: has not joined the job"));
}

TEST(Watchdog, ARankThatFinishedIsNotWaitedFor) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 2), second(board, 1, 2);
  first.pass("barrier");
  second.pass("barrier");
  second.finish();
  first.begin_for_ever("broadcast", "weights");
  EXPECT_THAT(first.report(10s),
              AllOf(HasSubstr("collective 2 (broadcast of 'weights') cannot end"),
                    HasSubstr("rank 1 is missing: finished without taking part, after collective 1 "
                              "(barrier)")));
}

TEST(Watchdog, ARankThatFinishedAfterTakingPartIsNoFault) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 2), second(board, 1, 2);
  second.pass("barrier");
  second.finish();
  first.begin_for_ever("barrier");
  EXPECT_EQ(first.report(2s), "");
}

TEST(Watchdog, ARankThatFailedIsNotWaitedForAndIsQuoted) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 2), second(board, 1, 2);
  first.begin_for_ever("barrier");
  second->post_failure("script.lua:3: no such layer");
  EXPECT_THAT(first.report(10s),
              AllOf(HasSubstr("collective 1 (barrier) cannot end"),
                    HasSubstr("rank 1 is missing: failed before any collective: script.lua:3: no "
                              "such layer")));
}

TEST(Watchdog, WhatTheLauncherSaysOfADeadRankIsQuoted) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 2), second(board, 1, 2);
  second.begin_for_ever("barrier");
  first.begin_for_ever("barrier");
  board->post(end_key(1), "signal 9 (Killed)");
  EXPECT_THAT(first.report(10s), HasSubstr("rank 1 is missing: ended: signal 9 (Killed); last seen "
                                           "in collective 1 (barrier)"));
}

TEST(Watchdog, ARankThatGaveUpIsNotTheMissingOne) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 3, 1), second(board, 1, 3), third(board, 2, 3);
  second.pass("barrier");
  first.begin_for_ever("barrier");
  first.begin_for_ever("all_reduce", "norms");
  third.begin_for_ever("barrier");
  third.begin_for_ever("all_reduce", "norms");
  // Rank 0 runs into its timeout; rank 2, with a long one, is told so.
  EXPECT_THAT(first.report(), HasSubstr("collective 1 (barrier)"));
  EXPECT_THAT(third.report(10s),
              AllOf(HasSubstr("rank 0: gave up: rank 0: collective 1 (barrier) has not ended"),
                    Not(HasSubstr("rank 0 is missing"))));
}

TEST(Watchdog, ABoardThatIsGoneNamesItsHost) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 2);
  first.begin_for_ever("barrier");
  board->is_gone = true;
  EXPECT_THAT(first.report(15s), AllOf(HasSubstr("collective 1 (barrier) cannot end"),
                                       HasSubstr("the job's board is gone with its host, rank 7: "
                                                 "board: connection closed")));
}

TEST(Watchdog, ABoardThatIsGoneIsNoFaultWithoutACollective) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 2);
  first.pass("barrier");
  board->is_gone = true;
  EXPECT_EQ(first.report(3500ms), "");
}

TEST(Watchdog, ABoardThatDoesNotAnswerHoldsNothingUp) {
  const auto board = std::make_shared<MemoryBoard>();
  {
    Guarded first(board, 0, 2, 0.5);
    board->is_frozen = true;
    first.begin_for_ever("barrier");
    EXPECT_THAT(first.report(10s), AllOf(HasSubstr("collective 1 (barrier) has not ended"),
                                         HasSubstr("the job's board does not answer: its host, "
                                                   "rank 7, may be stopped")));
  }
  board->is_frozen = false;  // lets the thread that was left behind go
}

TEST(Watchdog, ExplainWaitsForTheLastWordsOfTheOthers) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 2), second(board, 1, 2);
  const int64_t number = first.begin_for_ever("reduce_scatter", "block.1");
  std::thread late([&] {
    std::this_thread::sleep_for(300ms);
    second->post_failure("out of memory");
  });
  EXPECT_THAT(
      first->explain(number, "connection closed by peer"),
      AllOf(HasSubstr("rank 0: collective 1 (reduce_scatter of 'block.1') failed: connection "
                      "closed by peer"),
            HasSubstr("rank 1 is missing: failed before any collective: out of memory")));
  late.join();
  EXPECT_EQ(first.report(1500ms), "");  // explained, not reported once more
}

TEST(Watchdog, ExplainSaysWhenNobodyIsKnownToBeMissing) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 2), second(board, 1, 2);
  const int64_t number = first.begin_for_ever("barrier");
  second.begin_for_ever("barrier");
  EXPECT_THAT(first->explain(number, "strange"),
              AllOf(HasSubstr("collective 1 (barrier) failed: strange"),
                    HasSubstr("no rank is known to be missing")));
  // The other rank would wait for ever: it learns that this one has left, and why.
  EXPECT_THAT(second.report(10s),
              HasSubstr("rank 0: gave up: rank 0: collective 1 (barrier) failed: strange"));
}

TEST(Watchdog, AfterExplainTheOthersDoNotCallThisRankTheCause) {
  const auto board = std::make_shared<MemoryBoard>();
  Guarded first(board, 0, 3), second(board, 1, 3), third(board, 2, 3);
  const int64_t number = first.begin_for_ever("barrier");
  third.begin_for_ever("barrier");
  second->post_failure("mine");
  first->explain(number, "closed");
  first->post_failure("the error that explain made");
  EXPECT_THAT(third.report(10s), AllOf(HasSubstr("rank 1 is missing: failed"),
                                       HasSubstr("rank 0: gave up: rank 0: collective 1")));
}

TEST(Watchdog, BeginsAndEndsFromManyThreads) {
  Guarded rank(std::make_shared<MemoryBoard>(), 0, 2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 500; ++j) {
        const int64_t number = rank->begin("all_gather", "unit", [] { return true; });
        if (j % 2 == 0) rank->end(number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rank.pass("barrier"), 2001);
}

// --- ranks that are processes ---

// FOLDER: rank 1 of 2 that passes one collective, begins another and waits to be dealt with.
int be_rank_in_collective(const std::vector<std::string>& words) {
  launch::die_with_parent();
  Guarded rank(std::make_shared<FolderBoard>(words.at(0)), 1, 2);
  rank.pass("barrier");
  rank.begin_for_ever("all_reduce", "norms");
  std::this_thread::sleep_for(60s);
  return 0;
}
const ChildModeEntry kRankInCollective("rank_in_collective", &be_rank_in_collective);

class WatchedProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    board_ = std::make_shared<FolderBoard>(folder_.path());
    child_ = launch::start_process({child_command("rank_in_collective", {folder_.path().string()}),
                                    folder_.path() / "log",
                                    {}});
    ASSERT_TRUE(comes_true([&] {
      const auto text = board_->read(pulse_key(1));
      const auto pulse = text ? read_pulse(*text) : std::nullopt;
      return pulse && pulse->started == 2;
    }));
  }
  void TearDown() override {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  TemporaryFolder folder_;
  std::shared_ptr<FolderBoard> board_;
  pid_t child_ = 0;
};

TEST_F(WatchedProcess, ThatIsKilledIsMissedWellBeforeTheTimeout) {
  Guarded first(board_, 0, 2);
  first.pass("barrier");
  first.begin_for_ever("all_reduce", "norms");
  ::kill(child_, SIGKILL);
  EXPECT_THAT(first.report(9s),
              AllOf(HasSubstr("collective 2 (all_reduce of 'norms') cannot end"),
                    HasSubstr("rank 1 is missing: its process is gone; last seen in collective 2 "
                              "(all_reduce of 'norms')")));
}

TEST_F(WatchedProcess, ThatIsStoppedIsNamedAtTheTimeout) {
  Guarded first(board_, 0, 2, 2);
  for (int i = 0; i < 3; ++i) first.pass("barrier");
  ::kill(child_, SIGSTOP);
  first.begin_for_ever("all_reduce", "norms");
  EXPECT_THAT(
      first.report(7s),
      AllOf(HasSubstr("collective 4 (all_reduce of 'norms') has not ended after 2."),
            HasSubstr(fmt::format("rank 1 is missing: its process {} is stopped", child_))));
}

TEST_F(WatchedProcess, ThatIsKilledShowsInExplainAtOnce) {
  Guarded first(board_, 0, 2);
  const int64_t number = first.begin_for_ever("barrier");
  ::kill(child_, SIGKILL);
  EXPECT_THAT(first->explain(number, "connection reset"),
              AllOf(HasSubstr("collective 1 (barrier) failed: connection reset"),
                    HasSubstr("rank 1 is missing: its process is gone")));
}

// A board on which rank 1 gives up just after its pulse was read, and ends.
class LateWordsBoard : public FolderBoard {
 public:
  LateWordsBoard(std::filesystem::path folder, pid_t child)
      : FolderBoard(std::move(folder)), child_(child) {}
  std::optional<std::string> read(const std::string& key) override {
    const std::optional<std::string> text = FolderBoard::read(key);
    if (key == pulse_key(1)) {
      if (is_next.exchange(false)) give_up_and_end(read_pulse(text.value()).value());
      ++looks;
    }
    return text;
  }

  std::atomic<int> looks{0};
  std::atomic<bool> is_next{false};

 private:
  void give_up_and_end(Pulse pulse) {
    ::kill(child_, SIGKILL);
    ASSERT_TRUE(comes_true([&] { return look_at(pulse.process) == Life::Gone; }));
    pulse.state = RankState::GaveUp;
    pulse.error = "rank 1: over rank 2";
    post(pulse_key(1), to_text(pulse));
  }
  const pid_t child_;
};

TEST_F(WatchedProcess, ThatGivesUpWhileItIsLookedAtIsNotMissing) {
  const auto board = std::make_shared<LateWordsBoard>(folder_.path(), child_);
  const double between_looks = 60;  // but for those that explaining asks for
  Guarded first(board, 0, 3, 60, between_looks), third(board_, 2, 3);
  first.pass("barrier");
  const int64_t number = first.begin_for_ever("all_reduce", "norms");
  third->post_failure("its own mistake");
  third.finish();
  ASSERT_TRUE(comes_true([&] { return board->looks > 0; }));
  board->is_next = true;
  EXPECT_THAT(first->explain(number, "closed"),
              AllOf(HasSubstr("rank 2 is missing: failed before any collective: its own mistake"),
                    HasSubstr("rank 1: gave up: rank 1: over rank 2")));
}

}  // namespace
}  // namespace moonshard::comm
