// Ranks on other hosts, with this machine in their place: a remote shell that stays here, and this
// program as the agent. Two real hosts are in two_hosts_spec.lua.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <regex>

#include "runtime/base/check.h"
#include "runtime/launch/host_agent.h"
#include "runtime/launch/ranks.h"
#include "tests/runtime/comm/boards.h"
#include "tests/runtime/launch/child_modes.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const ChildModeEntry agent_mode("host_agent",
                                [](const std::vector<std::string>&) { return serve_host_ranks(); });

class RemoteRanks : public ::testing::Test {
 protected:
  std::filesystem::path program(const std::string& name, const std::string& text) {
    const auto path = folder_.path() / name;
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    ::chmod(path.c_str(), 0700);
    return path;
  }
  /// One rank here, two there.
  RanksRequest job(const std::string& shell, const std::string& rank) {
    std::string agent;
    for (const std::string& word : child_command("host_agent")) agent += word + " ";
    RanksRequest request;
    request.arguments = {
        program("program", "[ \"$1\" = host-ranks ] && exec " + agent + "\n" + rank).string()};
    request.count = 3;
    request.hosts = {{"here", 1, true}, {"there", 2, false}};
    request.remote_shell = program("shell", shell).string() + " -v";
    request.log_dir = folder_.path() / "logs";
    request.rank_0_has_log = true;
    request.last_words_s = 0.2;
    request.make_meeting_point = [this](const std::string& token) {
      token_ = token;
      return MeetingPoint{"tcp:a:1", board_, "first"};
    };
    return request;
  }
  std::string log(const std::string& name) const {
    std::ifstream in(folder_.path() / "logs" / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

  static constexpr const char* kShell =
      "[ \"$1 $2\" = '-v there' ] || exit 255; shift 2; echo welcome; "
      "exec env -i PATH=\"$PATH\" sh -c \"cd /; $*\"";
  TemporaryFolder folder_;
  std::shared_ptr<FolderBoard> board_ = std::make_shared<FolderBoard>(folder_.path());
  std::string token_;
};

TEST_F(RemoteRanks, RunAsThoseHereDo) {
  ::setenv("MOONSHARD_TRAVELS", "a 'b'\n=c", 1);
  ::setenv("STAYS", "here", 1);
  const RanksResult result =
      launch_ranks(job(kShell,
                       "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MOONSHARD_JOB_TOKEN "
                       "$MOONSHARD_STORE $MASTER_ADDR \"$MOONSHARD_TRAVELS\" $STAYS; pwd >&2"));
  ::unsetenv("MOONSHARD_TRAVELS");
  ::unsetenv("STAYS");
  EXPECT_EQ(result.exit_code, 0) << result.report;
  const std::string folder = std::filesystem::current_path().string();
  const std::string all = token_ + " tcp:a:1 first a 'b'\n=c";
  EXPECT_EQ(log("log.rank0.txt"), "0 3 0 1 " + all + " here\n" + folder + "\n");
  for (const int rank : {1, 2}) {
    const std::string text = log(fmt::format("log.rank{}.txt", rank));
    EXPECT_THAT(text, HasSubstr(fmt::format("{} 3 {} 2 {}\n", rank, rank - 1, all)));
    EXPECT_THAT(text, HasSubstr(folder + "\n"));
  }
  EXPECT_EQ(board_->read(comm::end_key(2)), "exit code 0 on there");
}

TEST_F(RemoteRanks, FailWithTheirCodeAndTheEndOfTheirLog) {
  const RanksResult failed =
      launch_ranks(job(kShell, "[ $RANK = 2 ] || exec sleep 100; echo why; exit 5"));
  EXPECT_EQ(failed.exit_code, 5);
  EXPECT_EQ(failed.failed_host, "there");
  EXPECT_FALSE(failed.lost_host);
  EXPECT_THAT(failed.report, AllOf(HasSubstr("rank 2 of 3 failed first: exit code 5 on there"),
                                   HasSubstr("\n    why"), HasSubstr("rank 1 went on")));
  const RanksResult killed = launch_ranks(job(kShell, "[ $RANK = 1 ] && kill -9 $$; sleep 100"));
  EXPECT_EQ(killed.exit_code, 137);
}

TEST_F(RemoteRanks, AreLostWithAHostThatCannotBeHad) {
  RanksRequest request = job("echo no such key >&2; exit 255", "exec sleep 100");
  const RanksResult result = launch_ranks(request);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(result.lost_host);
  EXPECT_THAT(result.report,
              HasSubstr("rank 1 of 3 failed first: its host there was lost: this program did not "
                        "start there, the remote shell ended with exit code 255"));
  EXPECT_EQ(log("log.host.there.txt"), "no such key\n");
}

// An agent that ends before its input does would close a connection with unread signs of life in
// it: a reset, and the last words that are still on their way are lost.
TEST_F(RemoteRanks, HaveAnAgentThatStaysUntilTheLauncherHasHeardAll) {
  const auto order = folder_.path() / "order";
  const std::string shell =
      "shift 2; { cat; echo input >> ORDER; } | { sh -c \"$*\"; echo agent >> ORDER; }";
  const std::string named = std::regex_replace(shell, std::regex("ORDER"), order.string());
  RanksRequest request = job(named, "echo words");
  const RanksResult result = launch_ranks(request);
  EXPECT_EQ(result.exit_code, 0) << result.report;
  EXPECT_EQ(log("log.rank2.txt"), "words\n");
  std::ifstream in(order);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "input\nagent\n");
}

// A shell that is a script shares its input and output with the agent, and may read them late: an
// agent that made them non-blocking ended its commands with "Resource temporarily unavailable".
TEST_F(RemoteRanks, LeaveTheShellsInputAsItIs) {
  const RanksResult result = launch_ranks(
      job("shift 2; { sleep 0.5; cat; } | sh -c \"$*\"", "echo words; exec sleep 0.1"));
  EXPECT_EQ(result.exit_code, 0) << result.report << log("log.host.there.txt");
  EXPECT_EQ(log("log.rank2.txt"), "words\n");
}

// A rank here failed; what became of those on a host that was lost meanwhile is said, too.
TEST_F(RemoteRanks, ThatAreLostLaterAreNamed) {
  RanksRequest request =
      job("shift 2; sh -c \"$*\" & sleep 2; exit 9", "[ $RANK = 0 ] && exit 3; exec sleep 100");
  request.last_words_s = 20;
  const RanksResult result = launch_ranks(request);
  EXPECT_EQ(result.failed_rank, 0);
  EXPECT_FALSE(result.lost_host);
  EXPECT_THAT(result.report, HasSubstr("\n  rank 2: its host there was lost: the connection"));
}

// The connection breaks when the shell ends; the agent and its ranks end with it.
TEST_F(RemoteRanks, EndWithTheConnection) {
  const std::string shell =
      "shift 2; mkfifo in; sh -c \"$*\" <in & exec 3>in; dd bs=1 count=2000 >&3 2>/dev/null & "
      "sleep 1; exit 9";
  RanksRequest request = job("cd " + folder_.path().string() + "; " + shell,
                             "echo $$ > " + folder_.path().string() + "/pid.$RANK; exec sleep 100");
  const RanksResult result = launch_ranks(request);
  EXPECT_TRUE(result.lost_host);
  EXPECT_THAT(result.report, HasSubstr("its host there was lost"));
  for (const int rank : {1, 2}) {
    int pid = 0;
    std::ifstream(folder_.path() / fmt::format("pid.{}", rank)) >> pid;
    for (int i = 0; i < 500 && pid > 0 && ::kill(pid, 0) == 0; ++i) ::usleep(10'000);
    EXPECT_TRUE(pid == 0 || ::kill(pid, 0) != 0);
  }
}

TEST(HostList, IsNamesAndCounts) {
  const auto hosts = read_host_list("localhost:3,me@192.0.2.7,192.0.2.8:12", 2);
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_TRUE(hosts[0].is_here);
  EXPECT_EQ(hosts[0].count, 3);
  EXPECT_FALSE(hosts[1].is_here);
  EXPECT_EQ(hosts[1].count, 2);
  EXPECT_EQ(network_name(hosts[1]), "192.0.2.7");
  EXPECT_EQ(hosts[2].count, 12);
  for (const char* bad : {"", "a:", "a:0", "a:x", "a,,b", "-v", "a b", "a:1:2", "a;b", "a:5000"})
    EXPECT_THAT([&] { read_host_list(bad, 1); }, ThrowsMessage<UsageError>(HasSubstr("--hosts")))
        << bad;
}

TEST(JobThereFields, AreReadBackAndNonsenseIsNot) {
  JobThere job;
  job.directory = "/a b";
  job.patience_s = 7.5;
  job.first_rank = 3;
  job.count = 2;
  job.world = 6;
  job.arguments = {"program", "", "a=b"};
  job.variables = {{"A", "x=y"}, {"B", ""}};
  const auto fields = fields_of(job);
  const auto read = read_job(fields);
  ASSERT_TRUE(read);
  EXPECT_EQ(fields_of(*read), fields);
  for (size_t i = 0; i < 7; ++i) {
    if (i == 1) continue;
    auto changed = fields;
    changed[i] = "-9";
    EXPECT_EQ(read_job(changed).has_value(), i == 2) << i;
  }
  EXPECT_FALSE(read_job({fields.begin(), fields.begin() + 7}));
}

}  // namespace
}  // namespace moonshard::launch
