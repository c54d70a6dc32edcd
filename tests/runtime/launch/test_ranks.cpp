// The launcher with real processes: shells, and this program in modes of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/comm/pulse.h"
#include "runtime/comm/watchdog.h"
#include "runtime/launch/ranks.h"
#include "tests/runtime/comm/boards.h"
#include "tests/runtime/launch/child_modes.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

template <class Condition>
bool comes_true(Condition condition, std::chrono::milliseconds most = 20s) {
  const auto deadline = Clock::now() + most;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

bool is_running(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(stat, text)) return false;
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.compare(name_end, 3, ") Z") != 0;
}

class Ranks : public ::testing::Test {
 protected:
  RanksRequest request(int count, std::vector<std::string> arguments) {
    RanksRequest result;
    result.arguments = std::move(arguments);
    result.count = count;
    result.log_dir = folder_.path() / "logs";
    result.rank_0_has_log = true;
    result.make_meeting_point = [this](const std::string& token) {
      token_ = token;
      return MeetingPoint{"/the/socket", board_};
    };
    return result;
  }
  RanksRequest shell(int count, const std::string& script) {
    return request(count, {"/bin/sh", "-c", script});
  }
  std::string log(int rank) const { return text_of(rank_log(folder_.path() / "logs", rank)); }
  /// What a rank wrote into FOLDER/NAME.<rank>, as a process id.
  pid_t pid_from(const std::string& name) const {
    const std::string text = text_of(folder_.path() / name);
    return text.empty() || text.back() != '\n' ? 0 : std::stoi(text);
  }
  std::string here() const { return folder_.path().string(); }

  TemporaryFolder folder_;
  std::shared_ptr<FolderBoard> board_ = std::make_shared<FolderBoard>(folder_.path());
  std::string token_;
};

TEST_F(Ranks, KnowWhoTheyAre) {
  ::unsetenv("OMP_NUM_THREADS");
  const RanksResult result =
      launch_ranks(shell(3,
                         "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE "
                         "$MOONSHARD_JOB_TOKEN $MOONSHARD_STORE; test $OMP_NUM_THREADS -ge 1"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.failed_rank, -1);
  EXPECT_EQ(result.report, "");
  EXPECT_EQ(token_.size(), 32u);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(log(rank), fmt::format("{0} 3 {0} 3 {1} /the/socket\n", rank, token_));
  EXPECT_EQ(board_->read(comm::end_key(2)), "exit code 0");
}

TEST_F(Ranks, HaveAnotherTokenInEveryJob) {
  launch_ranks(shell(1, "true"));
  const std::string first = token_;
  launch_ranks(shell(1, "true"));
  EXPECT_NE(token_, first);
}

TEST_F(Ranks, KeepTheThreadsThatTheUserSet) {
  ::setenv("OMP_NUM_THREADS", "7", 1);
  launch_ranks(shell(2, "echo $OMP_NUM_THREADS"));
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(log(1), "7\n");
}

TEST_F(Ranks, DoNotHandTheirPlaceDownToProcessesTheyStart) {
  ::setenv("MOONSHARD_STORE", "1", 1);
  ::setenv("RANK", "5", 1);
  const ProcessResult child = run_process({"/bin/sh", "-c", "test -z \"$RANK$MOONSHARD_STORE\""},
                                          folder_.path() / "child", {});
  launch_ranks(shell(1, "echo $RANK"));
  ::unsetenv("MOONSHARD_STORE");
  ::unsetenv("RANK");
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(log(0), "0\n");
}

TEST_F(Ranks, StartWithEmptyLogs) {
  launch_ranks(shell(1, "echo first"));
  launch_ranks(shell(1, "echo second"));
  EXPECT_EQ(log(0), "second\n");
}

TEST_F(Ranks, TheFirstThatFailsIsNamedWithItsCodeAndItsLogsEnd) {
  const RanksResult result =
      launch_ranks(shell(3,
                         "if [ $RANK = 1 ]; then for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "
                         "line $i; done; printf 'last\\033[31m\\n'; exit 7; fi"));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_THAT(result.report, AllOf(HasSubstr("rank 1 of 3 failed first: exit code 7"),
                                   HasSubstr("log.rank1.txt:\n    line 4\n"),
                                   HasSubstr("\n    last?[31m"), Not(HasSubstr("line 3\n"))));
  EXPECT_EQ(board_->read(comm::end_key(1)), "exit code 7");
}

TEST_F(Ranks, ASignalIsACodeAbove128) {
  const RanksResult result = launch_ranks(shell(2, "test $RANK = 0 || kill -9 $$"));
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.report, HasSubstr("rank 1 of 2 failed first: signal 9 (Killed)"));
}

TEST_F(Ranks, OthersHaveTimeForTheirLastWords) {
  const RanksResult result = launch_ranks(
      shell(2, "if [ $RANK = 1 ]; then exit 3; fi; sleep 0.5; echo last words; exit 1"));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(log(0), "last words\n");
}

TEST_F(Ranks, AllEndWithinTenSecondsEvenWhenTheyIgnoreBeingTold) {
  const auto start = Clock::now();
  const RanksResult result =
      launch_ranks(shell(3, "if [ $RANK = 2 ]; then exit 1; fi; trap '' TERM INT HUP; echo $$ > " +
                                here() + "/pid.$RANK; while true; do sleep 0.1; done"));
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_EQ(result.failed_rank, 2);
  EXPECT_THAT(result.report, HasSubstr("rank 0 went on and was made to end"));
  EXPECT_FALSE(is_running(pid_from("pid.0")));
  EXPECT_FALSE(is_running(pid_from("pid.1")));
}

TEST_F(Ranks, AStoppedRankIsEndedAndNamed) {
  RanksRequest job = shell(2, "echo $$ > " + here() +
                                  "/pid.$RANK; if [ $RANK = 0 ]; then sleep "
                                  "0.5; exit 1; fi; kill -STOP $$; sleep 60");
  job.last_words_s = 0.5;
  job.terminate_s = 0.5;
  const RanksResult result = launch_ranks(job);
  EXPECT_THAT(result.report, HasSubstr("rank 1 was stopped (SIGSTOP, a debugger) and was made to"));
  EXPECT_FALSE(is_running(pid_from("pid.1")));
}

TEST_F(Ranks, TheChildrenOfARankEndWithIt) {
  launch_ranks(shell(2, "sleep 60 & echo $! > " + here() + "/child.$RANK"));
  for (const char* name : {"child.0", "child.1"}) {
    ASSERT_NE(pid_from(name), 0);
    EXPECT_TRUE(comes_true([&] { return !is_running(pid_from(name)); }, 1s));
  }
}

TEST_F(Ranks, ChildrenThatIgnoreBeingToldAreMadeToEnd) {
  launch_ranks(shell(1, "(trap '' TERM; echo ready > " + here() +
                            "/ready; while true; do sleep 0.1; done) & echo $! > " + here() +
                            "/child; while [ ! -e " + here() + "/ready ]; do sleep 0.05; done"));
  ASSERT_NE(pid_from("child"), 0);
  EXPECT_TRUE(comes_true([&] { return !is_running(pid_from("child")); }, 1s));
}

TEST_F(Ranks, ARankThatGaveUpIsNotTheCause) {
  const auto pulse_file = [&](int rank, comm::RankState state, const std::string& error) {
    comm::Pulse pulse;
    pulse.state = state;
    pulse.error = error;
    pulse.started = 4;
    pulse.recent = {{4, "all_reduce", "norms", false}};
    board_->post(comm::pulse_key(rank), comm::to_text(pulse));
  };
  pulse_file(0, comm::RankState::GaveUp, "rank 1 is missing");
  pulse_file(1, comm::RankState::Failed, "memory: ran out");
  RanksRequest job = shell(2, "if [ $RANK = 0 ]; then exit 1; fi; sleep 0.3; exit 3");
  const RanksResult result = launch_ranks(job);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.error, "memory: ran out");
  EXPECT_THAT(result.report, HasSubstr("rank 1 of 2 failed first: exit code 3, in collective 4 "
                                       "(all_reduce of 'norms')"));
}

TEST_F(Ranks, AnInterruptReachesEveryRankOnce) {
  std::thread user([&] {
    comes_true([&] { return pid_from("pid.0") != 0 && pid_from("pid.1") != 0; });
    request_interrupt();
  });
  EXPECT_THROW(launch_ranks(shell(2, "trap 'echo interrupted; exit 130' INT; echo $$ > " + here() +
                                         "/pid.$RANK; while true; do sleep 0.05; done")),
               Interrupted);
  user.join();
  clear_interrupt();
  EXPECT_EQ(log(0), "interrupted\n");
  EXPECT_EQ(log(1), "interrupted\n");
}

TEST_F(Ranks, RanksThatIgnoreAnInterruptAreMadeToEnd) {
  RanksRequest job = shell(
      2, "trap '' INT TERM; echo $$ > " + here() + "/pid.$RANK; while true; do sleep 0.05; done");
  job.interrupt_s = 0.3;
  std::thread user([&] {
    comes_true([&] { return pid_from("pid.0") != 0 && pid_from("pid.1") != 0; });
    request_interrupt();
  });
  EXPECT_THROW(launch_ranks(job), Interrupted);
  user.join();
  clear_interrupt();
  EXPECT_FALSE(is_running(pid_from("pid.0")));
  EXPECT_FALSE(is_running(pid_from("pid.1")));
}

TEST_F(Ranks, MistakesAreClear) {
  EXPECT_THROW(launch_ranks(request(2, {"/no/such/program"})), IoError);
  EXPECT_THROW(launch_ranks(shell(0, "true")), UsageError);
  EXPECT_THROW(launch_ranks(shell(100000, "true")), UsageError);
  RanksRequest job = shell(2, "true");
  std::ofstream(folder_.path() / "file") << "x";
  job.log_dir = folder_.path() / "file";
  EXPECT_THROW(launch_ranks(job), IoError);
}

// --- whole jobs of this program: launcher, ranks, watchdogs ---

// FOLDER HOW: a rank that passes two collectives by the board, writes its process id, and then
// waits in a third or misbehaves when it is rank 1.
int be_rank(const std::vector<std::string>& words) {
  die_with_parent();
  const std::filesystem::path folder = words.at(0);
  const std::string how = words.at(1);
  const int rank = std::atoi(std::getenv("RANK")), world = std::atoi(std::getenv("WORLD_SIZE"));
  comm::WatchdogOptions options;
  options.rank = rank;
  options.world = world;
  options.timeout_s = how == "stop" ? 2 : 60;
  auto watchdog = std::make_unique<comm::Watchdog>(std::make_shared<FolderBoard>(folder), options);
  for (int i = 0; i < 2; ++i) watchdog->end(watchdog->begin("barrier", "", {}));
  std::ofstream(folder / fmt::format("pid.{}", rank)) << ::getpid() << "\n" << std::flush;
  if (rank == 1 && how == "finish") {
    watchdog.reset();
    return 0;
  }
  if (rank == 1 && how == "fail") {
    watchdog->post_failure("its own mistake");
    return 6;
  }
  if (rank != 1 || how == "kill_launcher") watchdog->begin("all_reduce", "norms", {});
  std::this_thread::sleep_for(60s);
  return 0;
}
const ChildModeEntry kRank("rank", &be_rank);

// FOLDER: a launcher of two ranks, to be killed.
int be_launcher(const std::vector<std::string>& words) {
  RanksRequest job;
  job.arguments = child_command("rank", {words.at(0), "kill_launcher"});
  job.count = 2;
  job.log_dir = words.at(0);
  job.rank_0_has_log = true;
  job.make_meeting_point = [&](const std::string&) {
    return MeetingPoint{"/socket", std::make_shared<FolderBoard>(words.at(0))};
  };
  return launch_ranks(job).exit_code;
}
const ChildModeEntry kLauncher("launcher", &be_launcher);

class Jobs : public Ranks {
 protected:
  RanksRequest job(const std::string& how) {
    return request(3, child_command("rank", {here(), how}));
  }
  // Runs a job and sends rank 1 a signal when all ranks are at work. Seconds from then to the end.
  std::pair<RanksResult, double> run_and_send(const std::string& how, int signal) {
    Clock::time_point sent;
    std::thread sender([&] {
      comes_true([&] { return num_begun(0) >= 2 && num_begun(1) >= 2 && num_begun(2) >= 2; });
      sent = Clock::now();
      ::kill(pid_from("pid.1"), signal);
    });
    RanksResult result = launch_ranks(job(how));
    sender.join();
    return {result, std::chrono::duration<double>(Clock::now() - sent).count()};
  }
  int64_t num_begun(int rank) {
    const auto text = board_->read(comm::pulse_key(rank));
    const auto pulse = text ? comm::read_pulse(*text) : std::nullopt;
    return pulse && pid_from(fmt::format("pid.{}", rank)) != 0 ? pulse->started : 0;
  }
  void expect_nobody_left() {
    for (const char* name : {"pid.0", "pid.1", "pid.2"})
      EXPECT_FALSE(is_running(pid_from(name))) << name;
  }
};

TEST_F(Jobs, AKilledRankEndsAllWithinTenSecondsAndIsNamedByEveryRank) {
  const auto [result, seconds] = run_and_send("wait", SIGKILL);
  EXPECT_LT(seconds, 10);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.report, HasSubstr("rank 1 of 3 failed first: signal 9 (Killed), after "
                                       "collective 2 (barrier)"));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(log(rank), AllOf(HasSubstr("collective 3 (all_reduce of 'norms') cannot end"),
                                 HasSubstr("rank 1 is missing"), HasSubstr("signal 9 (Killed)")));
  }
  expect_nobody_left();
}

TEST_F(Jobs, AStoppedRankEndsAllWithinTheTimeoutAndFiveSeconds) {
  const auto [result, seconds] = run_and_send("stop", SIGSTOP);
  EXPECT_LT(seconds, 2 + 5);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.report, HasSubstr("rank 1 was stopped (SIGSTOP, a debugger)"));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(log(rank),
                AllOf(HasSubstr("collective 3 (all_reduce of 'norms')"),
                      HasSubstr("rank 1 is missing: its process"), HasSubstr("is stopped")));
  }
  expect_nobody_left();
}

TEST_F(Jobs, ARankThatFinishesEarlyIsNamedByTheOthers) {
  const RanksResult result = launch_ranks(job("finish"));
  EXPECT_EQ(result.exit_code, 1);
  for (const int rank : {0, 2})
    EXPECT_THAT(log(rank), HasSubstr("rank 1 is missing: finished without taking part, after "
                                     "collective 2 (barrier)"));
  expect_nobody_left();
}

TEST_F(Jobs, ARankThatFailsIsTheCauseAndIsQuoted) {
  const RanksResult result = launch_ranks(job("fail"));
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.error, "its own mistake");
  for (const int rank : {0, 2})
    EXPECT_THAT(log(rank), HasSubstr("rank 1 is missing: failed after collective 2 (barrier): its "
                                     "own mistake"));
  expect_nobody_left();
}

TEST_F(Jobs, NobodyIsLeftWhenTheLauncherIsKilled) {
  const pid_t launcher =
      start_process({child_command("launcher", {here()}), folder_.path() / "launcher.log", {}});
  ASSERT_TRUE(comes_true([&] { return pid_from("pid.0") && pid_from("pid.1"); }))
      << text_of(folder_.path() / "launcher.log");
  EXPECT_TRUE(is_running(pid_from("pid.0")));
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  EXPECT_TRUE(comes_true([&] { return !is_running(pid_from("pid.0")); }, 5s));
  EXPECT_TRUE(comes_true([&] { return !is_running(pid_from("pid.1")); }, 5s));
}

}  // namespace
}  // namespace moonshard::launch
