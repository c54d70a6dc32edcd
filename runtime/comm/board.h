// A small key-value table that all processes of a job share: state and failures of each rank.
// Backed by the rendezvous store; tests keep it in memory.
#pragma once

#include <optional>
#include <string>

namespace moonshard::comm {

class Board {
 public:
  virtual ~Board() = default;
  /// Throws IoError when the board cannot be reached.
  virtual void post(const std::string& key, const std::string& text) = 0;
  /// Does not wait for a key: empty when nothing was posted under it. Throws as post does.
  virtual std::optional<std::string> read(const std::string& key) = 0;
  /// Which process hosts the board, for reports: "the launcher", "rank 0".
  virtual std::string host() const { return "the launcher"; }
};

}  // namespace moonshard::comm
