// Running the program as several ranks: --nproc N starts it again N times, and every copy detects
// that it is a rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/host/verbs.h"
#include "runtime/launch/remote_ranks.h"

namespace moonshard::host {

/// --nproc and --log-dir as typed, for verbs that add them to their flags.
struct RanksFlags {
  std::string nproc = "1", log_dir;
};
template <class T>
void add_ranks_flags(OptionSchema& schema) {
  schema.text<T>("nproc", &T::nproc, "ranks on this machine, 1 to 4096");
  schema.text<T>("log_dir", &T::log_dir, "folder for the logs of ranks other than 0");
}

/// The same, checked; a script may also be started again.
struct RanksOptions {
  int64_t nproc = 1;                          ///< of all hosts
  std::string log_dir;                        ///< empty: a temporary one, named after a failure
  std::vector<launch::HostRanks> hosts = {};  ///< empty: this machine alone
  std::string remote_shell = {};              ///< how the other hosts are reached
  int64_t max_restarts = 0;                   ///< after a rank or the job was lost
  int64_t min_nproc = 0;  ///< ranks to go on with if a restart fails at once; 0: all of them
};

/// True when this process has to start ranks instead of doing the work. Throws UsageError when the
/// environment's variables contradict each other, or --nproc.
bool must_start_ranks(int64_t nproc);
/// The same for a script, whose ranks may be elsewhere or be started again.
bool must_start_ranks(const RanksOptions& options);

/// Starts this program as ranks with the verb and these arguments; returns the job's exit code.
/// Rank 0 uses our terminal; a failure is reported and the logs are named on stderr. Ranks of a
/// restarted job see how often in MOONSHARD_RESTARTS.
int start_ranks(const RanksOptions& options, const Verb& verb, const Words& words);
/// The same if the flags ask for ranks and this process is not one; empty when it has to do the
/// work.
std::optional<int> start_ranks_if_asked(const RanksFlags& flags, const Verb& verb,
                                        const Words& words);

/// Removes "--nproc N", "--nproc=N", "--hosts A:2,B:2", "--remote-shell WORDS", "--log-dir D",
/// "--max-restarts N" and "--min-nproc N" from the front of arguments that end in a script and its
/// own arguments.
RanksOptions take_ranks_options(Words& words);

/// In a rank of another launcher (mpirun, srun, torchrun): ends this process when that launcher was
/// killed and cannot do so. Ranks of our own die with their parent anyway.
void end_with_launcher();

/// Whether this process prints and writes results: rank 0, or no rank at all.
bool is_first_rank();

/// In a rank that ends: posts that to the others, once. Empty text: success. Does nothing
/// elsewhere.
void end_rank(const std::string& error = "");

/// True in a rank that posted an error: its process must end without destructors, which could wait
/// for ranks that are gone.
bool has_failed_as_rank();

}  // namespace moonshard::host
