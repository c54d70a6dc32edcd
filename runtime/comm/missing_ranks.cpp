#include "runtime/comm/missing_ranks.h"

#include <algorithm>

#include <fmt/format.h>

namespace moonshard::comm {
namespace {

// A rank of another machine without a heartbeat for this long is taken for dead: its machine has
// lost power, or the network is cut. (A process that ends is known at once: its connection to the
// store is closed. Processes of this machine are checked directly.) TCP sends again after 0.2, 0.4,
// 0.8 ... s: what a network loses for 12 s may come after 25.
constexpr double kSilenceOfTheDead = 30;
// A heartbeat gap below this means nothing: a busy machine, a slow network.
constexpr double kSilence = 2.5;

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string indented(std::string text) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 5))
    text.replace(at, 1, "\n    ");
  return text;
}

std::string last_seen(const Sighting& sighting) {
  return sighting.pulse ? "last seen " + describe_position(*sighting.pulse) : "it never joined";
}

const Collective* with_number(const Pulse& pulse, int64_t number) {
  const auto found =
      std::find_if(pulse.recent.begin(), pulse.recent.end(),
                   [&](const Collective& collective) { return collective.number == number; });
  return found != pulse.recent.end() ? &*found : nullptr;
}

// What the rank called under the same number, if that is something else; else null.
const Collective* other_call(const Pulse& pulse, const Collective& collective) {
  const Collective* same = with_number(pulse, collective.number);
  const bool differs = same != nullptr &&
                       (same->operation != collective.operation || same->about != collective.about);
  return differs ? same : nullptr;
}

constexpr const char* kSameOrder = "every rank must call the same collectives in the same order";

Verdict judge_ended(const Collective& collective, const Sighting& sighting) {
  const Pulse& pulse = *sighting.pulse;
  switch (pulse.state) {
    case RankState::Failed:
      return {Absence::Failed, true,
              fmt::format("failed {}: {}", describe_position(pulse), indented(pulse.error))};
    case RankState::GaveUp:
      // All that wait give up at about the same time: which of them called something else is the
      // cause, whoever was the first to say so.
      if (const Collective* other = other_call(pulse, collective)) {
        return {Absence::Differs, true,
                fmt::format("called something else, and gave up: its {}; {}", name_of(*other),
                            kSameOrder)};
      }
      return {Absence::GaveUp, true, "gave up: " + first_line(pulse.error)};
    case RankState::Finished:
      if (pulse.started < collective.number) {
        return {Absence::Finished, true,
                fmt::format("finished without taking part, {}", describe_position(pulse))};
      }
      break;
    case RankState::Running:
      break;
  }
  return {};
}

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) text += fmt::format("{}{}", last == i + 1 ? ", " : "-", ranks[last]);
    i = last + 1;
  }
  return text;
}

// The board is lost: what this process has kept of the rank, and what it can see of its process.
Verdict judge_without_board(const Sighting& sighting) {
  if (sighting.life == Life::Gone && !sighting.ended_after_board)
    return {Absence::Dead, true, "its process is gone; " + last_seen(sighting)};
  const std::string seen = sighting.pulse ? last_seen(sighting) : "not seen before";
  if (sighting.hosted_board && sighting.life != Life::Alive) {
    return {
        Absence::Silent, true,
        fmt::format("hosted the job's board, which is gone: killed, ended or cut off; {}", seen)};
  }
  return {Absence::Unknown, sighting.ended_after_board,
          fmt::format("unknown: the board is lost with {}; {}{}", sighting.lost_with,
                      sighting.ended_after_board ? "its process has ended since; " : "", seen)};
}

}  // namespace

Verdict judge(const Collective& collective, const Sighting& sighting) {
  if (sighting.pulse && sighting.pulse->state != RankState::Running)
    return judge_ended(collective, sighting);
  if (!sighting.lost_with.empty() && sighting.end.empty()) return judge_without_board(sighting);
  if (!sighting.end.empty())
    return {Absence::Dead, true, fmt::format("ended: {}; {}", sighting.end, last_seen(sighting))};
  if (!sighting.pulse) return {Absence::NotJoined, false, "has not joined the job"};
  const Pulse& pulse = *sighting.pulse;
  if (sighting.life == Life::Gone)
    return {Absence::Dead, true, "its process is gone; " + last_seen(sighting)};
  if (sighting.life == Life::Stopped) {
    return {Absence::Stopped, false,
            fmt::format("its process {} is stopped (SIGSTOP, a debugger), {}", pulse.process.pid,
                        describe_position(pulse))};
  }
  if (sighting.silent_s > kSilence) {
    const bool is_certain = sighting.life == Life::Unknown && sighting.silent_s > kSilenceOfTheDead;
    // On a slow network the hung rank is the one that has not come.
    const bool has_come =
        pulse.started >= collective.number && other_call(pulse, collective) == nullptr;
    return {has_come && !is_certain ? Absence::Quiet : Absence::Silent, is_certain,
            fmt::format("no sign of life for {:.1f} s: killed, stopped or cut off; {}",
                        sighting.silent_s, last_seen(sighting))};
  }
  if (pulse.started < collective.number)
    return {Absence::Behind, false, "has not come: it is " + describe_position(pulse)};
  if (const Collective* other = other_call(pulse, collective)) {
    return {Absence::Differs, false,
            fmt::format("called something else: its {}; {}", name_of(*other), kSameOrder)};
  }
  return {};
}

Report report_missing(const std::string& headline, const Collective& collective, int own_rank,
                      const std::vector<Sighting>& sightings, const std::string& board_trouble) {
  std::vector<std::pair<Verdict, int>> verdicts;
  std::vector<int> present;
  for (int rank = 0; rank < static_cast<int>(sightings.size()); ++rank) {
    if (rank == own_rank) continue;
    Verdict verdict = judge(collective, sightings[static_cast<size_t>(rank)]);
    if (verdict.absence == Absence::None) {
      present.push_back(rank);
    } else {
      verdicts.emplace_back(std::move(verdict), rank);
    }
  }
  std::stable_sort(verdicts.begin(), verdicts.end(),
                   [](const auto& a, const auto& b) { return a.first.absence < b.first.absence; });
  Report report;
  report.text = headline;
  if (!board_trouble.empty()) report.text += "\n  " + board_trouble;
  for (const auto& [verdict, rank] : verdicts) {
    // Whoever gave up over a stopped rank may be gone by now: the stopped one is missing all the
    // same.
    const bool is_missing =
        verdict.absence == Absence::Stopped ||
        (verdict.absence == verdicts[0].first.absence && verdict.absence < Absence::GaveUp);
    if (is_missing) report.missing.push_back(rank);
    report.text +=
        fmt::format("\n  rank {}{}: {}", rank, is_missing ? " is missing" : "", verdict.text);
  }
  if (!present.empty()) {
    report.text +=
        fmt::format("\n  rank{} {} took part", present.size() == 1 ? "" : "s", list_ranks(present));
  }
  if (report.missing.empty() && board_trouble.empty())
    report.text += "\n  no rank is known to be missing";
  return report;
}

}  // namespace moonshard::comm
