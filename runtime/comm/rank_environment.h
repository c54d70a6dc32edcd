// Which rank of which job this process is, from its launcher's environment variables: our own
// launcher, torchrun, srun or mpirun. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace moonshard::comm {

struct RankEnvironment {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  ///< on this machine
  bool one_machine = true;              ///< all ranks are on it; the same answer on every rank
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 0;
  std::string route_to;         ///< the way there is the way to the other machines
  std::string store_socket;     ///< of our launcher's store on this machine; else empty
  std::string token;            ///< of the job; keeps other processes that reach the store out
  std::string source;           ///< "moonshard", "torchrun", "srun", "mpirun"
  bool store_is_hosted = true;  ///< by the launcher; else rank 0 hosts the rendezvous itself
};

/// Empty when this process was not started as one of several ranks. Throws UsageError when the
/// variables contradict each other, or when an address or port is missing and cannot be derived.
std::optional<RankEnvironment> rank_environment();

/// Value of a variable, nullptr when it is not set: std::getenv, or a test's replacement.
using LookUp = std::function<const char*(const char* name)>;
std::optional<RankEnvironment> rank_environment(const LookUp& look_up);

/// How long a collective may take: MOONSHARD_TIMEOUT in seconds, 300 without it.
double collective_timeout_s();
double collective_timeout_s(const LookUp& look_up);

/// The first machine of a Slurm list: "gpu[03-07,9],login" -> "gpu03". Empty when it names none.
std::string first_host(const std::string& node_list);

/// True for addresses that only this machine can reach: 127.x.x.x, localhost, ::1.
bool is_loopback(const std::string& address);

}  // namespace moonshard::comm
