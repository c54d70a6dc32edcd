// Work that succeeds on every rank of a group or fails on all. What may fail on one rank alone (a
// full disk, a damaged file) must not leave the others waiting, or continuing without it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace moonshard::checkpoint {

class AllOrNone {
 public:
  /// `about` names the purpose in reports of collectives. The group is for host tensors.
  AllOrNone(std::shared_ptr<comm::Communicator> group, std::string about);

  int rank() const { return group_->rank(); }

  /// Runs the work on every rank and returns what each returned, by rank. When it throws on some,
  /// all ranks throw the same error, that of the first of them, after all are done. The work may
  /// take any time: ranks that are done early do not run into a collective's time-out.
  std::vector<std::string> run(const std::function<std::string()>& work);
  /// The same for work of rank 0 alone; its answer on every rank.
  std::string run_on_first(const std::function<std::string()>& work);

 private:
  void wait_for(const std::function<bool()>& is_done);
  std::vector<std::string> gather(const std::string& own);

  std::shared_ptr<comm::Communicator> group_;
  std::string about_;
};

}  // namespace moonshard::checkpoint
