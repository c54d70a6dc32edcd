// The order matters where one launcher runs inside another: torchrun inside srun, mpirun inside a
// Slurm allocation. The innermost launcher's variables win.
#include "runtime/comm/rank_environment.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <vector>

#include "runtime/base/check.h"

namespace moonshard::comm {
namespace {

// Ports below the range that systems hand out for outgoing connections.
constexpr uint32_t kFirstPort = 15000, kNumPorts = 15000;
constexpr int kMaxWorld = 1 << 20;

class Variables {
 public:
  explicit Variables(const LookUp& look_up) : look_up_(look_up) {}

  // An empty variable counts as unset.
  std::string text(const char* name) const {
    const char* value = look_up_(name);
    return value != nullptr ? value : "";
  }
  bool has(const char* name) const { return !text(name).empty(); }

  int number(const char* name, int least, int most) const {
    const std::string value = text(name);
    int result = 0;
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, result);
    MS_CHECK(error == std::errc() && stop == end && result >= least && result <= most,
             "environment: variable {}: expected an integer from {} to {}, got '{}'; start the "
             "ranks with moonshard --nproc, torchrun, srun or mpirun",
             name, least, most, value);
    return result;
  }
  int number_or(const char* name, int least, int most, int otherwise) const {
    return has(name) ? number(name, least, most) : otherwise;
  }

 private:
  const LookUp& look_up_;
};

// FNV-1a: the same on all ranks, machines and versions.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char letter : text) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 1099511628211ULL;
  }
  return hash;
}

uint16_t port_for(const Variables& variables, const std::string& job) {
  if (variables.has("MASTER_PORT"))
    return static_cast<uint16_t>(variables.number("MASTER_PORT", 1, 65535));
  return static_cast<uint16_t>(kFirstPort + hash_of(job) % kNumPorts);
}

// Keys of two jobs, or of two attempts of one, that meet at one store must not mix.
std::string token_for(const Variables& variables, const std::string& job) {
  if (variables.has("MOONSHARD_JOB_TOKEN")) return variables.text("MOONSHARD_JOB_TOKEN");
  return fmt::format("{:016x}", hash_of(job));
}

void check_ranks(const RankEnvironment& environment, const char* rank_name, const char* world_name,
                 const char* local_name) {
  MS_CHECK(environment.rank < environment.world,
           "environment: variable {}: expected a rank below {}={}, got {}; both must come from one "
           "launcher",
           rank_name, world_name, environment.world, environment.rank);
  MS_CHECK(environment.local_rank < environment.local_world &&
               environment.local_world <= environment.world,
           "environment: variable {}: expected a rank below the {} on this machine (of {} in all), "
           "got {}; both must come from one launcher",
           local_name, environment.local_world, environment.world, environment.local_rank);
}

// Our launcher's store: a socket's path, or "tcp:ADDRESS:PORT" for a job of several machines.
void read_store(const Variables& variables, RankEnvironment& result) {
  const std::string store = variables.text("MOONSHARD_STORE"), scheme = "tcp:";
  if (!store.starts_with(scheme)) {
    result.store_socket = store;
    return;
  }
  const size_t colon = store.rfind(':');
  int port = 0;
  const char* end = store.data() + store.size();
  const auto [stop, error] = std::from_chars(store.data() + colon + 1, end, port);
  MS_CHECK(colon > scheme.size() && error == std::errc() && stop == end && port > 0 && port < 65536,
           "environment: variable MOONSHARD_STORE: expected a path or tcp:ADDRESS:PORT, got '{}'; "
           "start the ranks with moonshard run --hosts",
           store);
  result.master_address = store.substr(scheme.size(), colon - scheme.size());
  result.master_port = static_cast<uint16_t>(port);
}

// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: our launcher and torchrun set them, or the user.
std::optional<RankEnvironment> from_plain_variables(const Variables& variables) {
  if (!variables.has("RANK") && !variables.has("WORLD_SIZE")) return std::nullopt;
  for (const char* name : {"RANK", "WORLD_SIZE"}) {
    MS_CHECK(variables.has(name),
             "environment: expected RANK and WORLD_SIZE together, got no {}; set it, or unset the "
             "other",
             name);
  }
  RankEnvironment result;
  result.world = variables.number("WORLD_SIZE", 1, kMaxWorld);
  result.rank = variables.number("RANK", 0, kMaxWorld);
  // A token alone proves nothing: users who start ranks on several machines by hand may set one.
  const bool is_ours = variables.has("MOONSHARD_STORE");
  if (is_ours) read_store(variables, result);
  result.source = is_ours ? "moonshard" : "torchrun";
  result.store_is_hosted = is_ours || variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (result.world > 1 && !is_ours) {
    for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
      MS_CHECK(variables.has(name),
               "environment: RANK and WORLD_SIZE are set, expected {} as well, got none; set it to "
               "where rank 0 listens",
               name);
    }
    result.master_address = variables.text("MASTER_ADDR");
    result.master_port = static_cast<uint16_t>(variables.number("MASTER_PORT", 1, 65535));
  }
  // Without the local variables: one machine when only this machine can be reached, else one rank
  // per machine.
  const bool one_machine = is_loopback(result.master_address);
  result.local_rank =
      variables.number_or("LOCAL_RANK", 0, kMaxWorld, one_machine ? result.rank : 0);
  result.local_world = variables.number_or("LOCAL_WORLD_SIZE", 1, kMaxWorld,
                                           one_machine ? result.world : result.local_rank + 1);
  check_ranks(result, "RANK", "WORLD_SIZE", "LOCAL_RANK");
  // A count that was derived above may happen to be the world's on some ranks only.
  result.one_machine =
      (one_machine || variables.has("LOCAL_WORLD_SIZE")) && result.local_world == result.world;
  result.route_to =
      variables.has("MASTER_ADDR") ? variables.text("MASTER_ADDR") : result.master_address;
  result.token =
      token_for(variables, fmt::format("{}:{} {} {}", result.master_address, result.master_port,
                                       variables.text("TORCHELASTIC_RUN_ID"),
                                       variables.text("TORCHELASTIC_RESTART_COUNT")));
  return result;
}

// What all ranks of an mpirun share and no other mpirun has.
std::string mpi_job(const Variables& variables, bool one_machine) {
  std::string job;
  for (const char* name : {"OMPI_MCA_orte_precondition_transports", "OMPI_MCA_ess_base_jobid",
                           "PMIX_NAMESPACE", "PMI_JOBID", "PMI_KVSNAME", "SLURM_JOB_ID"}) {
    if (variables.has(name)) job += fmt::format("{}={} ", name, variables.text(name));
  }
  // MPICH's does not identify the job; on one machine all ranks have one parent.
  if (job.empty() && one_machine) job = fmt::format("parent {}", ::getppid());
  return job;
}

RankEnvironment from_mpi_variables(const Variables& variables, const char* rank_name,
                                   const char* world_name, const char* local_rank_name,
                                   const char* local_world_name) {
  RankEnvironment result;
  result.source = "mpirun";
  result.store_is_hosted = false;
  result.world = variables.number(world_name, 1, kMaxWorld);
  result.rank = variables.number(rank_name, 0, kMaxWorld);
  // A launcher that sets no machine variables runs everything on this machine, unless an address
  // shows otherwise.
  const bool elsewhere =
      variables.has("MASTER_ADDR") && !is_loopback(variables.text("MASTER_ADDR"));
  result.local_rank =
      variables.number_or(local_rank_name, 0, kMaxWorld, elsewhere ? 0 : result.rank);
  result.local_world = variables.number_or(local_world_name, 1, kMaxWorld,
                                           elsewhere ? result.local_rank + 1 : result.world);
  check_ranks(result, rank_name, world_name, local_rank_name);
  result.one_machine =
      (!elsewhere || variables.has(local_world_name)) && result.local_world == result.world;
  if (variables.has("MASTER_ADDR")) {
    result.master_address = variables.text("MASTER_ADDR");
  } else {
    MS_CHECK(result.local_world == result.world,
             "environment: mpirun started {} ranks, {} of them here: expected MASTER_ADDR to be "
             "the machine of rank 0, got none; give mpirun -x MASTER_ADDR=HOST",
             result.world, result.local_world);
  }
  const std::string job = mpi_job(variables, result.local_world == result.world);
  MS_CHECK(result.world == 1 || !job.empty() || variables.has("MASTER_PORT"),
           "environment: {} and {} are set, expected MASTER_PORT as well, got none; set it to a "
           "free port of rank 0's machine",
           rank_name, world_name);
  result.master_port = port_for(variables, job);
  result.token =
      token_for(variables, fmt::format("{}:{} {}", result.master_address, result.master_port, job));
  return result;
}

// "2(x3),1" -> 2 2 2 1
int tasks_on_node(const std::string& list, int node) {
  size_t at = 0;
  while (at < list.size()) {
    size_t end = list.find(',', at);
    if (end == std::string::npos) end = list.size();
    int tasks = 0, times = 1;
    const char* stop = list.data() + end;
    const auto first = std::from_chars(list.data() + at, stop, tasks);
    if (first.ec != std::errc()) break;
    if (stop - first.ptr > 2 && first.ptr[0] == '(' && first.ptr[1] == 'x')
      std::from_chars(first.ptr + 2, stop, times);
    if (node < times) return tasks;
    node -= times;
    at = end + 1;
  }
  throw UsageError(
      fmt::format("environment: variable SLURM_STEP_TASKS_PER_NODE: expected a number of tasks for "
                  "each node, like '2(x3),1', got '{}'; start the ranks with srun",
                  list));
}

RankEnvironment from_srun_variables(const Variables& variables) {
  RankEnvironment result;
  result.source = "srun";
  result.store_is_hosted = false;
  result.world = variables.number("SLURM_STEP_NUM_TASKS", 1, kMaxWorld);
  result.rank = variables.number("SLURM_PROCID", 0, kMaxWorld);
  const int nodes = variables.number_or("SLURM_STEP_NUM_NODES", 1, kMaxWorld, 1);
  const std::string tasks = variables.text("SLURM_STEP_TASKS_PER_NODE");
  result.local_world =
      tasks.empty() ? (result.world + nodes - 1) / nodes
                    : tasks_on_node(tasks, variables.number_or("SLURM_NODEID", 0, kMaxWorld, 0));
  result.local_rank = variables.number("SLURM_LOCALID", 0, kMaxWorld);
  check_ranks(result, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID");
  result.one_machine = result.local_world == result.world;
  if (variables.has("MASTER_ADDR")) {
    result.master_address = variables.text("MASTER_ADDR");
  } else if (result.local_world < result.world) {
    result.master_address = first_host(variables.text("SLURM_STEP_NODELIST"));
    MS_CHECK(
        !result.master_address.empty(),
        "environment: variable SLURM_STEP_NODELIST: expected the nodes of this step, got '{}'; "
        "set MASTER_ADDR to the machine of rank 0",
        variables.text("SLURM_STEP_NODELIST"));
  }
  const std::string job =
      fmt::format("slurm {} {}", variables.text("SLURM_JOB_ID"), variables.text("SLURM_STEP_ID"));
  result.master_port = port_for(variables, job);
  result.token =
      token_for(variables, fmt::format("{}:{} {}", result.master_address, result.master_port, job));
  return result;
}

std::optional<RankEnvironment> from_any_launcher(const Variables& variables) {
  if (auto plain = from_plain_variables(variables)) return plain;
  if (variables.has("OMPI_COMM_WORLD_RANK") && variables.has("OMPI_COMM_WORLD_SIZE")) {
    return from_mpi_variables(variables, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  }
  const bool has_pmi = variables.has("PMI_RANK") && variables.has("PMI_SIZE");
  // In a batch script SLURM_NTASKS describes the allocation; only a step has running tasks.
  if (variables.has("SLURM_STEP_NUM_TASKS") && variables.has("SLURM_PROCID") &&
      variables.text("SLURM_STEP_NUM_TASKS") != "1") {
    // srun also sets PMI's variables; an mpirun that uses srun to reach the nodes sets others.
    const bool agrees =
        !has_pmi || (variables.text("PMI_RANK") == variables.text("SLURM_PROCID") &&
                     variables.text("PMI_SIZE") == variables.text("SLURM_STEP_NUM_TASKS"));
    if (agrees) return from_srun_variables(variables);
  }
  if (has_pmi) {
    return from_mpi_variables(variables, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                              "MPI_LOCALNRANKS");
  }
  return std::nullopt;
}

}  // namespace

std::optional<RankEnvironment> rank_environment(const LookUp& look_up) {
  auto result = from_any_launcher(Variables(look_up));
  if (result && result->world == 1) return std::nullopt;
  if (result && result->route_to.empty()) result->route_to = result->master_address;
  return result;
}

std::optional<RankEnvironment> rank_environment() {
  return rank_environment([](const char* name) -> const char* { return std::getenv(name); });
}

double collective_timeout_s(const LookUp& look_up) {
  constexpr double kDefault = 300, kMost = 1e6;
  const char* value = look_up("MOONSHARD_TIMEOUT");
  if (value == nullptr || *value == '\0') return kDefault;
  char* end = nullptr;
  const double seconds = std::strtod(value, &end);
  MS_CHECK(*end == '\0' && seconds > 0 && seconds <= kMost,
           "environment: variable MOONSHARD_TIMEOUT: expected seconds above 0 and up to {:.0f}, "
           "got '{}'",
           kMost, value);
  return seconds;
}

double collective_timeout_s() {
  return collective_timeout_s([](const char* name) -> const char* { return std::getenv(name); });
}

std::string first_host(const std::string& node_list) {
  std::string host;
  size_t at = 0;
  while (at < node_list.size() && node_list[at] != ',') {
    if (node_list[at] != '[') {
      host += node_list[at++];
      continue;
    }
    const size_t close = node_list.find(']', at);
    if (close == std::string::npos) return "";
    const std::string ranges = node_list.substr(at + 1, close - at - 1);
    host += ranges.substr(0, ranges.find_first_of("-,"));
    at = close + 1;
  }
  return host;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "localhost" || address == "::1";
}

}  // namespace moonshard::comm
