// What one rank knows of its own collectives and of the other ranks, and what it concludes: the
// watchdog without threads, clock, board and lock. Whoever drives it says how much time has passed
// and what was seen. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/missing_ranks.h"
#include "runtime/comm/pulse.h"

namespace moonshard::comm {

inline constexpr double kLastWords = 3.0;  ///< seconds that explanations wait for the others

class Watch {
 public:
  struct Entry {
    Collective collective;
    std::function<bool()> is_done;
    double begun = 0;
    bool is_abandoned = false;  ///< failed and explained: not judged any more
    bool is_open() const { return !collective.is_done && !is_abandoned; }
  };
  using EntryPointer = std::shared_ptr<Entry>;
  using LookAt = std::function<Life(const ProcessIdentity&)>;
  using Text = std::optional<std::string>;

  Watch(int rank, int world, double timeout_s, LookAt look = look_at);

  int rank() const { return rank_; }
  int world() const { return world_; }

  /// Time that passes only while this process runs: being stopped does not count towards a timeout,
  /// and no single call counts for more than `most`.
  void advance(double seconds, double most) { now_ += seconds < most ? seconds : most; }

  // ---- this rank

  EntryPointer begin(const std::string& operation, const std::string& about,
                     std::function<bool()> is_done);
  /// Null when it is not known, or no more.
  EntryPointer find(int64_t number) const;
  EntryPointer oldest_open() const;
  std::vector<EntryPointer> open() const;
  /// Returns its question, to be freed where that may take time.
  std::function<bool()> note_done(Entry& entry);
  /// Forgets old collectives that are done.
  void trim();
  /// The transport is broken: none of them is judged any more. Returns their questions.
  std::vector<std::function<bool()>> abandon_all();

  RankState state() const { return state_; }
  void change_state(RankState to, const std::string& error);
  /// Grows with every change of what a pulse says.
  int64_t version() const { return version_; }
  /// With the next beat.
  Pulse pulse(const ProcessIdentity& process);

  // ---- the others

  /// What the board's texts under pulse_key, end_key and gone_key say of a rank, and what can be
  /// seen of its process. Changes nothing: needs no lock.
  Sighting see(const Text& text, const Text& end, const Text& gone) const;
  /// Its process is known to have ended, though the text read before says that it runs.
  static bool has_ended_running(const Sighting& seen);
  /// The process was seen to be gone from here: ranks elsewhere must be told (gone_key).
  static bool must_tell(const Sighting& seen);
  void keep(int rank, Sighting seen);
  /// The board cannot be reached: what was kept stands, and processes of this machine can be seen.
  void look_without_board(const Board& board);
  /// Empty: it answers.
  void note_board(const std::string& trouble);
  const std::string& board_error() const { return board_error_; }

  // ---- conclusions

  /// The oldest open collective takes so long that the others must be looked at.
  bool must_look() const;
  /// The oldest open collective if it can never finish, or has timed out; else null. On an old
  /// look: look again before it counts.
  EntryPointer suspect() const;
  /// Why the collective can never finish, or has timed out; empty if it may still finish.
  std::string why_unfinishable(const Entry& entry) const;
  Report report(const std::string& headline, const Collective& collective,
                const std::string& board_trouble) const;
  /// Whether a report of a failed collective can get no better by waiting.
  bool is_explained(const Collective& collective, const Report& report, double waited_s) const;

 private:
  int rank_, world_;
  double timeout_s_, patience_s_;
  LookAt look_;

  std::deque<EntryPointer> entries_;  // the oldest first: all open ones, and the last done ones
  int64_t started_ = 0;
  double now_ = 0;
  RankState state_ = RankState::Running;
  std::string error_;
  int64_t version_ = 0, beat_ = 0;

  std::vector<Sighting> sightings_;
  std::vector<std::pair<int64_t, double>> last_beats_;  // beat, and when it was first seen
  std::string board_error_;
  double board_error_since_ = 0;
};

}  // namespace moonshard::comm
