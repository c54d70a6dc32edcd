// A small table of texts that all processes of a job see: who is where, who has failed. A store of
// the rendezvous carries it; tests carry it in memory.
#pragma once

#include <optional>
#include <string>

namespace moonshard::comm {

class Board {
 public:
  virtual ~Board() = default;
  /// Throws IoError when the board cannot be reached.
  virtual void post(const std::string& key, const std::string& text) = 0;
  /// Does not wait for a key: nothing when nobody has posted under it. Throws as post does.
  virtual std::optional<std::string> read(const std::string& key) = 0;
  /// Who keeps the board, for reports: "the launcher", "rank 0".
  virtual std::string host() const { return "the launcher"; }
};

}  // namespace moonshard::comm
