#include "runtime/comm/watch.h"

#include <algorithm>

#include <fmt/format.h>

namespace moonshard::comm {
namespace {

constexpr double kPatience = 1.0;    // a collective open for longer: check the other ranks
constexpr double kBoardGrace = 2.0;  // how long a board may be out of reach
constexpr size_t kRecent = 16;       // collectives listed in a pulse

}  // namespace

Watch::Watch(int rank, int world, double timeout_s, LookAt look)
    : rank_(rank),
      world_(world),
      timeout_s_(timeout_s),
      patience_s_(std::min(kPatience, timeout_s / 2)),
      look_(std::move(look)),
      sightings_(static_cast<size_t>(world)),
      last_beats_(static_cast<size_t>(world)) {}

// ---- this rank --------------------------------------------------------------------------------

Watch::EntryPointer Watch::begin(const std::string& operation, const std::string& about,
                                 std::function<bool()> is_done) {
  auto entry = std::make_shared<Entry>();
  entry->collective = {++started_, operation, about};
  entry->is_done = std::move(is_done);
  entry->begun = now_;
  ++version_;
  entries_.push_back(entry);
  return entry;
}

Watch::EntryPointer Watch::find(int64_t number) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const auto& entry) {
    return entry->collective.number == number;
  });
  return found != entries_.rend() ? *found : nullptr;
}

Watch::EntryPointer Watch::oldest_open() const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [](const auto& entry) { return entry->is_open(); });
  return found != entries_.end() ? *found : nullptr;
}

std::vector<Watch::EntryPointer> Watch::open() const {
  std::vector<EntryPointer> open;
  for (const EntryPointer& entry : entries_)
    if (entry->is_open()) open.push_back(entry);
  return open;
}

std::function<bool()> Watch::note_done(Entry& entry) {
  entry.collective.is_done = true;
  ++version_;
  return std::exchange(entry.is_done, nullptr);
}

void Watch::trim() {
  while (entries_.size() > kRecent && !entries_.front()->is_open()) entries_.pop_front();
}

std::vector<std::function<bool()>> Watch::abandon_all() {
  std::vector<std::function<bool()>> dropped;
  for (const EntryPointer& entry : entries_) {
    entry->is_abandoned = true;
    dropped.push_back(std::exchange(entry->is_done, nullptr));
  }
  return dropped;
}

void Watch::change_state(RankState to, const std::string& error) {
  state_ = to;
  error_ = error;
  ++version_;
}

Pulse Watch::pulse(const ProcessIdentity& process) {
  Pulse result;
  result.beat = ++beat_;
  result.process = process;
  result.state = state_;
  result.error = error_;
  result.started = started_;
  const size_t first = entries_.size() > kRecent ? entries_.size() - kRecent : 0;
  const auto open = oldest_open();
  if (open != nullptr && first > 0 && open->collective.number < entries_[first]->collective.number)
    result.recent.push_back(open->collective);
  for (size_t i = first; i < entries_.size(); ++i) result.recent.push_back(entries_[i]->collective);
  return result;
}

// ---- the others -------------------------------------------------------------------------------

Sighting Watch::see(const Text& text, const Text& end, const Text& gone) const {
  Sighting seen;
  if (text) seen.pulse = read_pulse(*text);
  if (end) seen.end = *end;
  if (!seen.pulse) return seen;
  seen.life = look_(seen.pulse->process);
  if (!seen.end.empty() || seen.pulse->state != RankState::Running) return seen;
  if (seen.life == Life::Unknown && gone) seen.end = *gone;
  return seen;
}

bool Watch::has_ended_running(const Sighting& seen) {
  const bool says_it_runs = !seen.pulse || seen.pulse->state == RankState::Running;
  return says_it_runs && (!seen.end.empty() || seen.life == Life::Gone);
}

bool Watch::must_tell(const Sighting& seen) {
  return seen.pulse && seen.end.empty() && seen.life == Life::Gone && has_ended_running(seen);
}

void Watch::keep(int rank, Sighting seen) {
  auto& [last, since] = last_beats_[static_cast<size_t>(rank)];
  if (seen.pulse && seen.pulse->beat != last) {
    last = seen.pulse->beat;
    since = now_;
  }
  seen.silent_s = seen.pulse ? now_ - since : 0;
  sightings_[static_cast<size_t>(rank)] = std::move(seen);
}

// When its host is gone the others end one after another, and can no longer say why: only one that
// was seen to be gone before is a cause.
void Watch::look_without_board(const Board& board) {
  const int host = board.host_rank();
  bool host_is_gone = false;
  if (host >= 0) {
    const auto& pulse = sightings_[static_cast<size_t>(host)].pulse;
    host_is_gone = !pulse || look_(pulse->process) != Life::Alive;
  }
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    Sighting& seen = sightings_[static_cast<size_t>(rank)];
    seen.lost_with = board.host();
    seen.hosted_board = rank == host;
    if (!seen.pulse || seen.life == Life::Gone) continue;
    seen.life = look_(seen.pulse->process);
    seen.ended_after_board = seen.life == Life::Gone && host_is_gone && rank != host;
  }
}

void Watch::note_board(const std::string& trouble) {
  if (!trouble.empty() && board_error_.empty()) board_error_since_ = now_;
  board_error_ = trouble;
}

// ---- conclusions ------------------------------------------------------------------------------

bool Watch::must_look() const {
  const EntryPointer entry = oldest_open();
  return entry != nullptr && now_ - entry->begun >= patience_s_;
}

Watch::EntryPointer Watch::suspect() const {
  EntryPointer entry = oldest_open();
  return entry != nullptr && !why_unfinishable(*entry).empty() ? entry : nullptr;
}

std::string Watch::why_unfinishable(const Entry& entry) const {
  const double age = now_ - entry.begun;
  if (age < patience_s_) return "";
  const std::string name = name_of(entry.collective);
  if (age >= timeout_s_) {
    return fmt::format(
        "rank {}: {} has not ended after {:.1f} s; MOONSHARD_TIMEOUT sets how long one may take",
        rank_, name, age);
  }
  const std::string hopeless = fmt::format("rank {}: {} cannot end", rank_, name);
  if (!board_error_.empty() && now_ - board_error_since_ > kBoardGrace) return hopeless;
  for (int rank = 0; rank < world_; ++rank) {
    if (rank != rank_ && judge(entry.collective, sightings_[static_cast<size_t>(rank)]).is_certain)
      return hopeless;
  }
  return "";
}

Report Watch::report(const std::string& headline, const Collective& collective,
                     const std::string& board_trouble) const {
  return report_missing(headline, collective, rank_, sightings_, board_trouble);
}

// A rank that died is visible at once, or when its launcher posts it. After a timeout a late rank
// gives no new information, so the wait is half as long.
bool Watch::is_explained(const Collective& collective, const Report& report,
                         double waited_s) const {
  bool is_clear = !board_error_.empty(), all_have_ended = true;
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    const Verdict verdict = judge(collective, sightings_[static_cast<size_t>(rank)]);
    is_clear |= verdict.absence <= Absence::Stopped;
    all_have_ended &= verdict.is_certain;
  }
  if (is_clear || all_have_ended || waited_s >= kLastWords) return true;
  return !report.missing.empty() && waited_s >= kLastWords / 2;
}

}  // namespace moonshard::comm
