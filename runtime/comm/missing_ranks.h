// Which ranks are missing in a collective, judged from the board. Pure functions: the watchdog
// passes in what it has seen. Needs no LibTorch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/pulse.h"

namespace moonshard::comm {

/// What this process has seen of another rank.
struct Sighting {
  std::optional<Pulse> pulse;  ///< nothing: the rank has not joined
  std::string end;             ///< how its process ended; empty if not known to have ended
  Life life = Life::Unknown;
  double silent_s = 0;  ///< since its pulse was last seen to beat
  /// Not empty: the board is lost, the pulse is the last that this process has kept. Says with
  /// whom.
  std::string lost_with;
  bool hosted_board = false;  ///< the board was lost with this rank
  /// Its process ended when the board was gone already: as a survivor, for all that can be known.
  bool ended_after_board = false;
};

/// From the worst to none. The missing ranks are those of the worst kind among the first nine.
enum class Absence {
  Dead,
  Failed,
  Finished,
  Stopped,
  Silent,
  NotJoined,
  Behind,
  Differs,
  Quiet,  ///< silent for a while, but it had come to this collective
  GaveUp,
  Unknown,  ///< the board is lost: nobody to blame
  None
};

struct Verdict {
  Absence absence = Absence::None;
  bool is_certain = false;  ///< the rank can never join
  std::string text;         ///< without the rank: "was killed: signal 9 (Killed); last seen in …"
};

/// For a collective that this process is in.
Verdict judge(const Collective& collective, const Sighting& sighting);

struct Report {
  std::string text;  ///< headline, then a line per rank or group of ranks
  std::vector<int> missing;
};

/// `sightings` by rank; the entry of `own_rank` is ignored. `board_trouble` is empty, or says why
/// the board cannot be reached.
Report report_missing(const std::string& headline, const Collective& collective, int own_rank,
                      const std::vector<Sighting>& sightings, const std::string& board_trouble);

}  // namespace moonshard::comm
