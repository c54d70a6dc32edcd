// The program as several ranks: --nproc N starts it again N times, and every copy finds out that it
// is a rank.
#pragma once

#include <string>
#include <vector>

namespace moonshard::host {

/// What --nproc and --log-dir say.
struct RanksOptions {
  int64_t nproc = 1;
  std::string log_dir;  ///< empty: a new folder, named at the end
};

/// True when this process has to start ranks instead of working itself. Throws UsageError when the
/// environment's variables contradict each other, or --nproc.
bool must_start_ranks(int64_t nproc);

/// Starts this program with these words as ranks; returns the job's exit code. Rank 0 has our
/// terminal; a failure is reported and the logs are named on stderr.
int start_ranks(const RanksOptions& options, const std::vector<std::string>& words);

/// Takes "--nproc N", "--nproc=N" and "--log-dir D" away from the front of words that end in a
/// script and its own arguments.
RanksOptions take_ranks_options(std::vector<std::string>& words);

/// The words without an option and its value: "--name V" or "--name=V".
std::vector<std::string> without_option(const std::vector<std::string>& words,
                                        const std::string& name);

/// In a rank of another launcher (mpirun, srun, torchrun): ends this process when that launcher is
/// killed and cannot do so itself. Ranks of our own die with their parent anyway.
void end_with_launcher();

/// Whether this process prints and writes results: rank 0, or no rank at all.
bool is_first_rank();

/// In a rank that ends: tells the others, once. Empty text: all is well. Does nothing elsewhere.
void end_rank(const std::string& error = "");

/// True in a rank that told the others of an error: its process must end without destructors, which
/// could wait for ranks that are gone.
bool has_failed_as_rank();

}  // namespace moonshard::host
