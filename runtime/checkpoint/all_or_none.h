// Work that succeeds on every rank of a group or fails on all. What may fail on one rank alone (a
// full disk, a damaged file) must not leave the others waiting, or continuing without it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace moonshard::comm {
class Communicator;
}

namespace moonshard::checkpoint {

/// How the ranks of a group hear of each other: collectives of a communicator, or a simulation.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns what the work returns, which does not throw, when all ranks are done with theirs.
  virtual std::string perform(const std::function<std::string()>& work) = 0;
  /// May throw the exception that is being handled again as one of ours.
  virtual void rethrow() const {}
  /// What each rank gave, by rank.
  virtual std::vector<std::string> gather(const std::string& own) = 0;
};

class AllOrNone {
 public:
  /// `about` names the purpose in reports of collectives. The group is for host tensors.
  AllOrNone(std::shared_ptr<comm::Communicator> group, std::string about);
  explicit AllOrNone(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  int rank() const { return exchange_->rank(); }

  /// Runs the work on every rank and returns what each returned, by rank. When it throws on some,
  /// all ranks throw the same error, that of the first of them, after all are done. The work may
  /// take any time: ranks that are done early do not run into a collective's time-out.
  std::vector<std::string> run(const std::function<std::string()>& work);
  /// The same for work of rank 0 alone; its answer on every rank.
  std::string run_on_first(const std::function<std::string()>& work);

 private:
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace moonshard::checkpoint
