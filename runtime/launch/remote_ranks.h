// Ranks on other machines: a remote shell (ssh) starts this program there as their agent, which
// starts the ranks, hands their output over and ends them when the launcher is gone
// (host_agent.h). What the job needs, its token among it, goes over standard input: a command line
// is everybody's to read. Needs no LibTorch.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/launch/host_channel.h"
#include "runtime/launch/process.h"

namespace moonshard::launch {

/// A host of a job and how many ranks it has.
struct HostRanks {
  std::string name;  ///< as the remote shell takes it; empty for this machine
  int count = 1;
  bool is_here = true;
};

/// "a:2,b" -> a with 2, b with `count_otherwise`. Throws UsageError.
std::vector<HostRanks> read_host_list(const std::string& text, int count_otherwise);

/// The host's name for the network: without "user@".
std::string network_name(const HostRanks& host);

/// What travels to a host: where to run, what, and as which ranks. Variables are all that the ranks
/// see beside the host's own.
struct JobThere {
  std::string directory;
  double patience_s = 25;  ///< silence of the launcher after which the ranks end
  int first_rank = 0, count = 1, world = 1;
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> variables;
};
std::vector<std::string> fields_of(const JobThere& job);
/// Nothing when the fields are no job.
std::optional<JobThere> read_job(const std::vector<std::string>& fields);

/// Our variables that ranks on other machines should see, too: those of moonshard and of the
/// libraries it uses.
std::vector<std::pair<std::string, std::string>> travelling_variables();

/// How long a host may be silent: less than a collective may take, and less than the watchdog gives
/// a rank.
double host_patience_s();

/// RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; OMP_NUM_THREADS unless somebody set it: each
/// rank would take all cores, and all would be slow.
std::vector<std::pair<std::string, std::string>> rank_variables(int rank, int world, int local_rank,
                                                                int local_world);

std::filesystem::path rank_log(const std::filesystem::path& log_dir, int rank);
/// What the remote shell and the agent say.
std::filesystem::path host_log(const std::filesystem::path& log_dir, const HostRanks& host);

/// The launcher's end of one host.
class RemoteHost {
 public:
  struct RankThere {
    bool has_ended = false, is_stopped = false;
    ProcessResult end;
    std::string lost;  ///< why it counts as ended; empty when its end is known
  };

  /// Starts the remote shell; the rest happens in pump(). Output of rank 0 is ours unless it has a
  /// log. Throws IoError.
  RemoteHost(HostRanks host, const std::string& remote_shell, const std::string& program,
             const JobThere& job, const std::filesystem::path& log_dir, bool rank_0_has_log);
  /// Ends what is left there.
  ~RemoteHost();
  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;

  const HostRanks& host() const { return host_; }
  /// The remote shell, which leads a process group here.
  pid_t shell() const { return shell_; }
  const RankThere& rank(int rank) const { return ranks_[static_cast<size_t>(rank - first_rank_)]; }
  void send_signal(int rank, int signal);
  /// Takes and sends what is due, without waiting. A host that cannot be reached, or is silent for
  /// too long, is lost with its ranks.
  void pump();

 private:
  void take(const HostChannel::Message& message);
  void write_output(int rank, bool is_error, const std::string& bytes);
  void lose(const std::string& why);
  bool all_have_ended() const;
  std::string why_over() const;

  HostRanks host_;
  int first_rank_;
  double patience_s_;
  pid_t shell_ = 0;
  std::unique_ptr<HostChannel> channel_;
  std::vector<RankThere> ranks_;
  std::vector<Descriptor> logs_;  ///< by rank; none for a rank 0 that has our output
  std::filesystem::path log_;
  std::optional<std::chrono::steady_clock::time_point> over_since_;
};

}  // namespace moonshard::launch
