#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/base/check.h"
#include "runtime/comm/rank_environment.h"

namespace moonshard::comm {
namespace {

using Variables = std::map<std::string, std::string>;
using ::testing::HasSubstr;

LookUp look_up_in(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second.c_str() : nullptr;
  };
}

std::optional<RankEnvironment> environment_of(const Variables& variables) {
  return rank_environment(look_up_in(variables));
}

std::string error_of(const Variables& variables) {
  try {
    environment_of(variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) {
    if (value.empty()) {
      variables.erase(name);
    } else {
      variables[name] = value;
    }
  }
  return variables;
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node3"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "abc"},
                          {"TORCHELASTIC_RESTART_COUNT", "0"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kSrun{{"SLURM_JOB_ID", "812"},
                      {"SLURM_STEP_ID", "3"},
                      {"SLURM_STEP_NUM_TASKS", "7"},
                      {"SLURM_STEP_NUM_NODES", "4"},
                      {"SLURM_PROCID", "6"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "3"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                      {"SLURM_STEP_NODELIST", "gpu[03-05,9]"}};
const Variables kMpirun{{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                        {"PMIX_NAMESPACE", "prterun-host-17@1"}};

TEST(RankEnvironment, AProcessThatNobodyLaunchedIsNoRank) {
  EXPECT_FALSE(environment_of({}));
  EXPECT_FALSE(environment_of({{"MASTER_ADDR", "x"}, {"MASTER_PORT", "1"}}));
  EXPECT_FALSE(environment_of({{"RANK", ""}, {"WORLD_SIZE", ""}}));
}

TEST(RankEnvironment, AWorldOfOneIsNoRank) {
  EXPECT_FALSE(environment_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(environment_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_FALSE(environment_of({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}));
}

TEST(RankEnvironment, ABatchScriptOfSlurmIsNoRank) {
  EXPECT_FALSE(
      environment_of({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}));
}

TEST(RankEnvironment, TorchrunIsUnderstood) {
  const auto found = environment_of(kTorchrun);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->world, 8);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_world, 4);
  EXPECT_EQ(found->master_address, "node3");
  EXPECT_EQ(found->master_port, 29500);
  EXPECT_EQ(found->source, "torchrun");
  EXPECT_TRUE(found->store_is_hosted);
}

TEST(RankEnvironment, WithoutTorchrunsAgentRankZeroHosts) {
  EXPECT_FALSE(environment_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))
                   ->store_is_hosted);
  EXPECT_FALSE(
      environment_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", ""}}))->store_is_hosted);
}

TEST(RankEnvironment, ATokenIsTheSameOnAllRanksAndAnotherAfterARestart) {
  const auto first = environment_of(kTorchrun);
  const auto other_rank = environment_of(with(kTorchrun, {{"RANK", "2"}, {"LOCAL_RANK", "0"}}));
  const auto restarted = environment_of(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}}));
  EXPECT_EQ(first->token, other_rank->token);
  EXPECT_NE(first->token, restarted->token);
  EXPECT_FALSE(first->token.empty());
}

TEST(RankEnvironment, OurLauncherHostsAndGivesTheToken) {
  const auto found = environment_of({{"RANK", "1"},
                                     {"WORLD_SIZE", "2"},
                                     {"LOCAL_RANK", "1"},
                                     {"LOCAL_WORLD_SIZE", "2"},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", "4321"},
                                     {"MOONSHARD_JOB_TOKEN", "secret"},
                                     {"MOONSHARD_STORE", "/a/socket"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->source, "moonshard");
  EXPECT_EQ(found->token, "secret");
  EXPECT_TRUE(found->store_is_hosted);
}

TEST(RankEnvironment, OurLaunchersStoreMayBeOnAnotherMachine) {
  const Variables there{{"RANK", "2"},
                        {"WORLD_SIZE", "4"},
                        {"LOCAL_RANK", "0"},
                        {"LOCAL_WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "node1"},
                        {"MOONSHARD_JOB_TOKEN", "secret"},
                        {"MOONSHARD_STORE", "tcp:10.0.0.7:4321"}};
  const auto found = environment_of(there);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->source, "moonshard");
  EXPECT_EQ(found->store_socket, "");
  EXPECT_EQ(found->master_address, "10.0.0.7");
  EXPECT_EQ(found->master_port, 4321);
  EXPECT_EQ(found->route_to, "node1");
  EXPECT_FALSE(found->one_machine);
  EXPECT_EQ(environment_of(with(there, {{"MASTER_ADDR", ""}}))->route_to, "10.0.0.7");
  for (const char* bad : {"tcp:10.0.0.7", "tcp:10.0.0.7:", "tcp::1", "tcp:a:70000", "tcp:a:1x"})
    EXPECT_THAT(error_of(with(there, {{"MOONSHARD_STORE", bad}})),
                HasSubstr("variable MOONSHARD_STORE: expected a path or tcp:ADDRESS:PORT, got"));
}

// Both ranks must come to the same answer, or they would meet at different places.
TEST(RankEnvironment, OneMachineIsWhatAllRanksAgreeOn) {
  const Variables first{{"RANK", "0"},
                        {"WORLD_SIZE", "2"},
                        {"LOCAL_RANK", "0"},
                        {"MASTER_ADDR", "10.0.0.1"},
                        {"MASTER_PORT", "1234"}};
  EXPECT_FALSE(environment_of(first)->one_machine);
  EXPECT_FALSE(environment_of(with(first, {{"RANK", "1"}, {"LOCAL_RANK", "1"}}))->one_machine);
  EXPECT_TRUE(environment_of(with(first, {{"LOCAL_WORLD_SIZE", "2"}}))->one_machine);
  EXPECT_TRUE(environment_of(with(first, {{"MASTER_ADDR", "localhost"}}))->one_machine);
}

TEST(RankEnvironment, RanksStartedByHandNeedFourVariables) {
  const Variables loopback{
      {"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1234"}};
  const auto here = environment_of(loopback);
  EXPECT_EQ(here->local_rank, 2);
  EXPECT_EQ(here->local_world, 3);
  EXPECT_FALSE(here->store_is_hosted);
  const auto elsewhere = environment_of(with(loopback, {{"MASTER_ADDR", "10.0.0.1"}}));
  EXPECT_EQ(elsewhere->local_rank, 0);
  EXPECT_EQ(elsewhere->local_world, 1);
}

TEST(RankEnvironment, SrunIsUnderstood) {
  const auto found = environment_of(kSrun);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 6);
  EXPECT_EQ(found->world, 7);
  EXPECT_EQ(found->local_rank, 0);
  EXPECT_EQ(found->local_world, 1);
  EXPECT_EQ(found->master_address, "gpu03");
  EXPECT_EQ(found->source, "srun");
  EXPECT_FALSE(found->store_is_hosted);
  const auto second_node = environment_of(
      with(kSrun, {{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"}}));
  EXPECT_EQ(second_node->local_world, 2);
  EXPECT_EQ(second_node->master_port, found->master_port);
  EXPECT_EQ(second_node->token, found->token);
  EXPECT_GE(found->master_port, 15000);
  EXPECT_LT(found->master_port, 30000);
}

TEST(RankEnvironment, TwoStepsOfSlurmHaveTwoTokensAndPorts) {
  const auto first = environment_of(kSrun);
  const auto second = environment_of(with(kSrun, {{"SLURM_STEP_ID", "4"}}));
  EXPECT_NE(first->token, second->token);
  EXPECT_NE(first->master_port, second->master_port);
}

TEST(RankEnvironment, OneNodeOfSlurmStaysOnTheLoopback) {
  const auto found = environment_of(with(kSrun, {{"SLURM_STEP_NUM_TASKS", "2"},
                                                 {"SLURM_STEP_NUM_NODES", "1"},
                                                 {"SLURM_PROCID", "1"},
                                                 {"SLURM_LOCALID", "1"},
                                                 {"SLURM_NODEID", "0"},
                                                 {"SLURM_STEP_TASKS_PER_NODE", "2"}}));
  EXPECT_EQ(found->master_address, "127.0.0.1");
}

TEST(RankEnvironment, AnAddressAndAPortByHandWinInSrunAndMpirun) {
  const Variables by_hand{{"MASTER_ADDR", "login"}, {"MASTER_PORT", "5000"}};
  for (const Variables& variables : {kSrun, kMpirun}) {
    const auto found = environment_of(with(variables, by_hand));
    EXPECT_EQ(found->master_address, "login");
    EXPECT_EQ(found->master_port, 5000);
  }
}

TEST(RankEnvironment, MpirunIsUnderstood) {
  const auto found = environment_of(kMpirun);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->world, 2);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_world, 2);
  EXPECT_EQ(found->master_address, "127.0.0.1");
  EXPECT_EQ(found->source, "mpirun");
  EXPECT_FALSE(found->store_is_hosted);
  EXPECT_NE(found->master_port,
            environment_of(with(kMpirun, {{"PMIX_NAMESPACE", "prterun-host-18@1"}}))->master_port);
}

TEST(RankEnvironment, MpichOnOneMachineIsUnderstood) {
  const auto found = environment_of(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->local_world, 4);
  EXPECT_EQ(found->source, "mpirun");
}

TEST(RankEnvironment, TheNearestLauncherWins) {
  EXPECT_EQ(environment_of(with(kSrun, kTorchrun))->source, "torchrun");
  EXPECT_EQ(environment_of(with(kSrun, kMpirun))->source, "mpirun");
  EXPECT_EQ(environment_of(with(kSrun, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}}))->source, "srun");
  // MPICH's mpirun carried to the nodes by srun: the step has a task per node, PMI has the ranks.
  EXPECT_EQ(environment_of(with(kSrun, {{"PMI_RANK", "9"},
                                        {"PMI_SIZE", "28"},
                                        {"MPI_LOCALRANKID", "2"},
                                        {"MPI_LOCALNRANKS", "7"},
                                        {"MASTER_ADDR", "gpu03"}}))
                ->rank,
            9);
}

TEST(RankEnvironment, ContradictionsAreNamed) {
  const struct {
    Variables variables;
    const char* text;
  } cases[] = {
      {{{"RANK", "1"}}, "expected RANK and WORLD_SIZE together, got no WORLD_SIZE"},
      {{{"WORLD_SIZE", "2"}}, "expected RANK and WORLD_SIZE together, got no RANK"},
      {with(kTorchrun, {{"RANK", "8"}}),
       "variable RANK: expected a rank below WORLD_SIZE=8, got 8"},
      {with(kTorchrun, {{"RANK", "x"}}), "variable RANK: expected an integer from 0"},
      {with(kTorchrun, {{"RANK", "-1"}}), "variable RANK: expected an integer from 0"},
      {with(kTorchrun, {{"WORLD_SIZE", "99999999999"}}),
       "variable WORLD_SIZE: expected an integer"},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), "variable LOCAL_RANK: expected a rank below the 4"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "variable LOCAL_RANK: expected a rank below"},
      {with(kTorchrun, {{"MASTER_ADDR", ""}}), "expected MASTER_ADDR as well, got none"},
      {with(kTorchrun, {{"MASTER_PORT", ""}}), "expected MASTER_PORT as well, got none"},
      {with(kTorchrun, {{"MASTER_PORT", "0"}}), "variable MASTER_PORT: expected an integer from 1"},
      {with(kTorchrun, {{"MASTER_PORT", "70000"}}), "variable MASTER_PORT: expected an integer"},
      {with(kSrun, {{"SLURM_PROCID", "7"}}), "variable SLURM_PROCID: expected a rank below"},
      {with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "many"}}),
       "variable SLURM_STEP_TASKS_PER_NODE: expected a number of tasks for each node"},
      {with(kSrun, {{"SLURM_NODEID", "4"}}),
       "variable SLURM_STEP_TASKS_PER_NODE: expected a number"},
      {with(kSrun, {{"SLURM_STEP_NODELIST", ""}}),
       "variable SLURM_STEP_NODELIST: expected the nodes"},
      {with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "4"}}), "expected MASTER_ADDR to be the machine of"},
      {with(kMpirun,
            {{"OMPI_COMM_WORLD_SIZE", "4"}, {"MASTER_ADDR", "node"}, {"PMIX_NAMESPACE", ""}}),
       "expected MASTER_PORT as well, got none"},
  };
  for (const auto& [variables, text] : cases) EXPECT_THAT(error_of(variables), HasSubstr(text));
}

TEST(RankEnvironment, TheFirstHostOfASlurmListIsFound) {
  const std::map<std::string, std::string> cases{{"node", "node"},
                                                 {"a,b", "a"},
                                                 {"node[03-07,9]", "node03"},
                                                 {"node[9,03-07]", "node9"},
                                                 {"n[1-2]-ib", "n1-ib"},
                                                 {"r[1-2]n[04-05],z", "r1n04"},
                                                 {"", ""},
                                                 {"node[03", ""}};
  for (const auto& [list, host] : cases) EXPECT_EQ(first_host(list), host) << list;
}

TEST(RankEnvironment, TheTimeoutIsSecondsAboveZero) {
  const auto timeout = [](const Variables& variables) {
    return collective_timeout_s(look_up_in(variables));
  };
  EXPECT_EQ(timeout({}), 300);
  EXPECT_EQ(timeout({{"MOONSHARD_TIMEOUT", "2.5"}}), 2.5);
  for (const char* wrong : {"0", "-1", "soon", "3s", "nan", "inf"}) {
    try {
      timeout({{"MOONSHARD_TIMEOUT", wrong}});
      ADD_FAILURE() << wrong;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("variable MOONSHARD_TIMEOUT: expected seconds above 0"));
      EXPECT_THAT(error.what(), HasSubstr(wrong));
    }
  }
}

}  // namespace
}  // namespace moonshard::comm
