#include "viewer/panels/trace_text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

struct TimeUnit {
  const char* text;
  double us;
};
constexpr std::array<TimeUnit, 4> kUnits = {{{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}}};

const TimeUnit& unit_for(double time_us) {
  size_t unit = 0;
  // A hair below the next unit rounds up to it: 999.96 us reads 1 ms.
  while (unit + 1 < kUnits.size() && std::abs(time_us) >= 0.99995 * kUnits[unit + 1].us) ++unit;
  return kUnits[unit];
}

constexpr size_t kMaxCopiedNames = 200;

using Cells = std::vector<std::string>;

// Columns under each other, or a Markdown table. The first column is words, the rest are figures.
std::string table_text(const std::vector<Cells>& rows, TextStyle style) {
  std::vector<size_t> widths(rows.front().size(), 3);
  for (const Cells& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  const bool markdown = style == TextStyle::Markdown;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (markdown) text += "|";
    for (size_t c = 0; c < rows[r].size(); ++c) {
      std::string cell = rows[r][c];
      if (markdown) {
        for (size_t at = 0; (at = cell.find('|', at)) != std::string::npos; at += 2) {
          cell.insert(at, "\\");
        }
      }
      text +=
          c == 0 ? fmt::format("{:<{}}", cell, widths[c]) : fmt::format("{:>{}}", cell, widths[c]);
      text += markdown ? "|" : c + 1 < rows[r].size() ? "  " : "";
    }
    text += "\n";
    if (markdown && r == 0) {
      text += "|";
      for (size_t c = 0; c < widths.size(); ++c) {
        text += std::string(widths[c] - 1, '-') + (c == 0 ? "-|" : ":|");
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace

std::string format_time(double time_us) {
  if (std::abs(time_us) < 1e-12) return "0";
  const TimeUnit& unit = unit_for(time_us);
  const double value = time_us / unit.us;
  const int digits = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  std::string number = fmt::format("{:.{}f}", value, std::clamp(4 - digits, 0, 3));
  if (number.find('.') != std::string::npos) {
    while (number.ends_with('0')) number.pop_back();
    if (number.ends_with('.')) number.pop_back();
  }
  return number + " " + unit.text;
}

std::vector<RulerTick> ruler_ticks(const TimeWindow& window, size_t max_ticks) {
  std::vector<RulerTick> ticks;
  const double length = window.length_us();
  if (!(length > 0) || max_ticks == 0) return ticks;
  double step = std::pow(10.0, std::floor(std::log10(length / static_cast<double>(max_ticks))));
  for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if (length / step <= static_cast<double>(max_ticks)) break;
    step *= factor;
  }
  const TimeUnit& unit =
      unit_for(std::max({std::abs(window.start_us), std::abs(window.end_us), step}));
  const int decimals =
      std::clamp(static_cast<int>(-std::floor(std::log10(step / unit.us) + 1e-9)), 0, 12);
  const double first = std::ceil(window.start_us / step);
  for (double k = first; ticks.size() <= max_ticks && k * step <= window.end_us; ++k) {
    const double time = k * step;
    ticks.push_back({time, k == 0
                               ? std::string("0")
                               : fmt::format("{:.{}f} {}", time / unit.us, decimals, unit.text)});
  }
  return ticks;
}

std::string rank_title(const Trace& trace, const TraceRank& rank) {
  if (rank.rank >= 0) return fmt::format("rank {}", rank.rank);
  return clean_text(trace.lanes[rank.first_lane].process, 128);
}

std::string statistics_text(const Trace& trace, const TraceIndex& index, uint32_t name,
                            TextStyle style) {
  const NameStatistics found = name_statistics(index, name);
  const auto time = [](const char* what, double us) { return Cells{what, format_time(us)}; };
  const std::vector<Cells> rows = {{clean_text(trace.names[name], 512), "value"},
                                   {"count", fmt::format("{}", found.count)},
                                   time("total", found.total_us),
                                   time("self", found.self_us),
                                   time("mean", found.mean_us),
                                   time("median", found.median_us),
                                   time("min", found.min_us),
                                   time("max", found.max_us),
                                   time("95 % below", found.p95_us)};
  return table_text(rows, style);
}

std::string sums_text(const Trace& trace, const TraceIndex& index, const RangeSums& sums,
                      TextStyle style) {
  const double length = sums.range().length_us();
  std::string text = fmt::format("from {} to {}: {}\n\n", format_time(sums.range().start_us),
                                 format_time(sums.range().end_us), format_time(length));
  std::vector<Cells> ranks = {{"rank", "communication", "exposed", "exposed share"}};
  for (size_t r = 0; r < sums.ranks().size(); ++r) {
    const RangeSums::Rank& rank = sums.ranks()[r];
    ranks.push_back({rank_title(trace, index.ranks[r]), format_time(rank.communication_us),
                     format_time(rank.exposed_us),
                     format_share(rank.exposed_us, rank.communication_us)});
  }
  std::vector<Cells> lanes = {{"lane", "busy", "share"}};
  for (const RangeSums::Lane& lane : sums.lanes()) {
    lanes.push_back(
        {fmt::format("{}, {}", rank_title(trace, index.ranks[index.lane_rank[lane.lane]]),
                     clean_text(trace.lanes[lane.lane].thread, 128)),
         format_time(lane.busy_us), format_share(lane.busy_us, length)});
  }
  std::vector<Cells> names = {{"name", "total", "count", "mean"}};
  for (const RangeSums::Name& name : sums.names()) {
    if (names.size() > kMaxCopiedNames) break;
    names.push_back({clean_text(trace.names[name.name], 512), format_time(name.total_us),
                     fmt::format("{}", name.count), format_time(name.total_us / name.count)});
  }
  text +=
      table_text(ranks, style) + "\n" + table_text(lanes, style) + "\n" + table_text(names, style);
  if (sums.names().size() > kMaxCopiedNames) {
    text += fmt::format("and {} more names\n", sums.names().size() - kMaxCopiedNames);
  }
  return text;
}

}  // namespace moonshard::viewer
