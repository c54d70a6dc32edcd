#include "runtime/launch/restarts.h"

#include <algorithm>

#include "runtime/base/interrupt.h"

namespace moonshard::launch {
namespace {

// A start that fails this soon, twice in a row, does so for a reason that another start does not
// mend: a GPU that is gone.
constexpr double kTooSoon = 60;

}  // namespace

int64_t total_of(const std::vector<HostRanks>& hosts) {
  int64_t total = 0;
  for (const HostRanks& host : hosts) total += host.count;
  return total;
}

bool Restarts::start_again(const RanksResult& result, double ran_s) {
  const int exit_code = result.exit_code;
  // The command line, and who asked the job to end, would say the same once more.
  if (exit_code == 0 || exit_code == 2 || exit_code == kExitToContinue) return false;
  if (done_ == options_.max_restarts) return false;
  soon_ = ran_s < kTooSoon ? soon_ + 1 : 0;
  if (soon_ >= 2 && options_.min_nproc > 0 && count_ > options_.min_nproc) {
    give_up_one(result);
    soon_ = 0;
  }
  ++done_;
  return true;
}

// The host that was lost, if enough ranks remain without it; else one rank, where one failed.
void Restarts::give_up_one(const RanksResult& result) {
  if (hosts_.empty()) {
    --count_;
    return;
  }
  auto host = std::find_if(hosts_.begin(), hosts_.end(),
                           [&](const HostRanks& each) { return each.name == result.failed_host; });
  if (host == hosts_.end()) host = hosts_.end() - 1;
  const bool may_go = result.lost_host && count_ - host->count >= options_.min_nproc;
  host->count = may_go ? 0 : host->count - 1;
  if (host->count == 0) hosts_.erase(host);
  count_ = total_of(hosts_);
}

}  // namespace moonshard::launch
