// Whether, and with how many ranks, a job that has ended is started again (moonshard run
// --max-restarts). Decides from what the launcher saw; starts nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/launch/ranks.h"

namespace moonshard::launch {

struct RestartOptions {
  int64_t nproc = 1;
  std::vector<HostRanks> hosts = {};  ///< empty: all ranks are here
  int64_t max_restarts = 0;           ///< after a rank or the job was lost
  int64_t min_nproc = 0;  ///< ranks to go on with if a restart fails at once; 0: all of them
};

class Restarts {
 public:
  explicit Restarts(const RestartOptions& options)
      : options_(options), count_(options.nproc), hosts_(options.hosts) {}

  int count() const { return static_cast<int>(count_); }
  const std::vector<HostRanks>& hosts() const { return hosts_; }
  int64_t done() const { return done_; }

  /// After a start that ran for so long. When true, count() and hosts() are those of the next.
  bool start_again(const RanksResult& result, double ran_s);

 private:
  void give_up_one(const RanksResult& result);

  RestartOptions options_;
  int64_t count_, done_ = 0;
  std::vector<HostRanks> hosts_;
  int soon_ = 0;
};

/// Ranks of all hosts.
int64_t total_of(const std::vector<HostRanks>& hosts);

}  // namespace moonshard::launch
