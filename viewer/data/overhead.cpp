#include "viewer/data/overhead.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

namespace moonshard::viewer {
namespace {

using Kind = Baseline::Kind;
using Names = std::vector<std::string>;
using Index = std::unordered_map<std::string, PointPlace>;

constexpr double kMiB = 1048576.0;

bool is_value(const RunData& run, const Value& value, const std::string& axis,
              const std::string& text) {
  if (value.kind == Value::Kind::Number) {
    double number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc() || end != text.data() + text.size()) return false;
    return number == value.number || plain_number(value.number) == text;
  }
  if (value.kind == Value::Kind::None) return false;
  if (value.kind == Value::Kind::Bool)  // tables say yes and no
    return text == (value.number != 0 ? "true" : "false") ||
           text == (value.number != 0 ? "yes" : "no");
  const std::string& own = run.text_of(value);
  return axis == "mode" ? canonical_mode(own) == canonical_mode(text) : own == text;
}

// Places of options in a run; nothing when it lacks one of them.
std::optional<std::vector<size_t>> columns_of(const RunData& run, const Names& names) {
  std::vector<size_t> columns;
  for (const std::string& name : names) {
    const auto column = run.options.find(name);
    if (!column) return std::nullopt;
    columns.push_back(*column);
  }
  return columns;
}

// The values of some options as one text: kinds apart, for the text "1" is not the number 1, and
// with lengths, so that "a" "bc" is not "ab" "c".
std::string key_of(const RunData& run, size_t point, const std::vector<size_t>& columns) {
  std::string key;
  for (const size_t column : columns) {
    const Value& value = run.options.at(point, column);
    key += static_cast<char>('0' + static_cast<int>(value.kind));
    if (value.kind == Value::Kind::Text) {
      const std::string& text = run.text_of(value);
      const size_t size = text.size();
      key.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
    } else {
      const double number = value.number == 0 ? 0 : value.number;  // -0 is 0
      key.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
  }
  return key;
}

Names joined_without(const Names& a, const Names& b, const std::string& axis) {
  std::set<std::string> all(a.begin(), a.end());
  all.insert(b.begin(), b.end());
  all.erase(axis);
  return {all.begin(), all.end()};
}

double ratio(double own, double other) {
  return other > 0 && std::isfinite(other) && std::isfinite(own) ? own / other : NAN;
}

// Where a run has the figures that are compared.
struct Figures {
  const RunData* run;
  std::optional<size_t> bytes, mebibytes, median, mean, tokens, samples;

  explicit Figures(const RunData& of)
      : run(&of),
        bytes(of.metrics.find("peak_memory_bytes")),
        mebibytes(of.metrics.find("peak_memory_mb")),
        median(of.metrics.find("median_time_ms")),
        mean(of.metrics.find("avg_time_ms")),
        tokens(of.metrics.find("tokens_per_s")),
        samples(of.metrics.find("samples_per_s")) {}

  double at(std::optional<size_t> column, size_t point) const {
    if (!column) return NAN;
    const Value& value = run->metrics.at(point, *column);
    return value.kind == Value::Kind::Number ? value.number : NAN;
  }
  double memory(size_t point) const {
    const double exact = at(bytes, point);
    return std::isnan(exact) ? at(mebibytes, point) * kMiB : exact;
  }
};

void compare(const Figures& own, size_t point, const Figures& other, size_t partner,
             Overhead& overhead) {
  const double own_bytes = own.memory(point), other_bytes = other.memory(partner);
  if (std::isfinite(own_bytes) && std::isfinite(other_bytes)) {
    overhead.memory_bytes = own_bytes - other_bytes;
    overhead.memory_percent = 100 * ratio(overhead.memory_bytes, other_bytes);
  }
  // The same figure of both: a median is not compared with a mean.
  overhead.time_ratio = ratio(own.at(own.median, point), other.at(other.median, partner));
  if (std::isnan(overhead.time_ratio))
    overhead.time_ratio = ratio(own.at(own.mean, point), other.at(other.mean, partner));
  overhead.throughput_ratio = ratio(own.at(own.tokens, point), other.at(other.tokens, partner));
  if (std::isnan(overhead.throughput_ratio))
    overhead.throughput_ratio = ratio(own.at(own.samples, point), other.at(other.samples, partner));
}

// Finds the partner of each point for a baseline on an axis. Runs that sweep the same options share
// their indices: a thousand runs have a few of them.
class AxisPartners {
 public:
  AxisPartners(const std::vector<const RunData*>& runs, const Baseline& baseline)
      : runs_(runs), baseline_(baseline) {
    for (size_t r = 0; r < runs.size(); ++r) by_axes_[runs[r]->axes].push_back(r);
  }

  std::vector<std::optional<PointPlace>> of_run(size_t r) {
    const RunData& run = *runs_[r];
    std::vector<std::optional<PointPlace>> partners(run.points.size());
    const Group& group = group_of(run.axes);
    Index own;
    add_to(own, r, group.axes);
    look_up(r, group.axes, own, partners);
    std::vector<std::optional<PointPlace>> others(run.points.size());
    for (const auto& [index, joined] : group.indices) {
      if (std::all_of(partners.begin(), partners.end(), [](const auto& p) { return bool(p); }))
        break;
      look_up(r, joined, *index, others);
    }
    for (size_t p = 0; p < partners.size(); ++p)
      if (!partners[p]) partners[p] = others[p];
    return partners;
  }

 private:
  // What runs that sweep the same options have in common.
  struct Group {
    Names axes;                                           // without the baseline's
    std::vector<std::pair<const Index*, Names>> indices;  // of all groups of runs, by joined axes
  };

  const Group& group_of(const Names& axes) {
    const auto [place, added] = groups_.try_emplace(axes);
    Group& group = place->second;
    if (!added) return group;
    group.axes = joined_without(axes, {}, baseline_.axis);
    for (const auto& [other_axes, members] : by_axes_) {
      const Names joined = joined_without(axes, other_axes, baseline_.axis);
      group.indices.emplace_back(&shared_index(other_axes, joined, members), joined);
    }
    return group;
  }

  void look_up(size_t r, const Names& names, const Index& index,
               std::vector<std::optional<PointPlace>>& partners) const {
    const RunData& run = *runs_[r];
    const auto columns = columns_of(run, names);
    if (!columns || index.empty()) return;
    for (size_t p = 0; p < run.points.size(); ++p) {
      const auto found = index.find(key_of(run, p, *columns));
      if (found == index.end()) continue;
      // Of several groups of runs the one that was opened first.
      if (!partners[p] || found->second.run < partners[p]->run) partners[p] = found->second;
    }
  }

  void add_to(Index& index, size_t r, const Names& names) const {
    const RunData& run = *runs_[r];
    const auto axis = run.options.find(baseline_.axis);
    const auto columns = columns_of(run, names);
    if (!axis || !columns) return;
    for (size_t p = 0; p < run.points.size(); ++p)
      if (is_value(run, run.options.at(p, *axis), baseline_.axis, baseline_.value))
        index.try_emplace(key_of(run, p, *columns), PointPlace{r, p});
  }

  const Index& shared_index(const Names& axes, const Names& joined,
                            const std::vector<size_t>& members) {
    const auto [place, added] = shared_.try_emplace({axes, joined});
    if (added)
      for (const size_t r : members) add_to(place->second, r, joined);
    return place->second;
  }

  const std::vector<const RunData*>& runs_;
  const Baseline& baseline_;
  std::map<Names, std::vector<size_t>> by_axes_;
  std::map<std::pair<Names, Names>, Index> shared_;
  std::map<Names, Group> groups_;
};

std::optional<PointPlace> find_point(const std::vector<const RunData*>& runs,
                                     const Baseline& baseline) {
  for (size_t r = 0; r < runs.size(); ++r) {
    if (runs[r]->path != baseline.run) continue;
    for (size_t p = 0; p < runs[r]->points.size(); ++p)
      if (runs[r]->points[p].id == baseline.point) return PointPlace{r, p};
  }
  return std::nullopt;
}

void fill(const std::vector<Figures>& figures, PointPlace own,
          const std::optional<PointPlace>& partner, const std::string& absence,
          Overhead& overhead) {
  const std::string& status = figures[own.run].run->points[own.point].status;
  if (status != "ok") {
    overhead.why_none = "status " + status + ": no figures to compare";
    return;
  }
  if (!partner) {
    overhead.why_none = absence;
    return;
  }
  const PointHead& other = figures[partner->run].run->points[partner->point];
  if (other.status != "ok") {
    overhead.why_none =
        fmt::format("its baseline, point {}, has status {}", other.id, other.status);
    return;
  }
  overhead.baseline = partner;
  compare(figures[own.run], own.point, figures[partner->run], partner->point, overhead);
}

}  // namespace

std::string_view canonical_mode(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kAliases = {
      {{"no_dp", "none"},
       {"vanilla", "none"},
       {"no_dp_single", "none"},
       {"materialized", "materialize"},
       {"ghost_fsdp", "ghost"},
       {"ghost_clip", "ghost"},
       {"flash_fsdp", "flash"},
       {"flash_clip", "flash"},
       {"ghost_bookkeeping", "bookkeeping"},
       {"bookkeeping_fsdp", "bookkeeping"},
       {"flash_clip_bookkeeping", "flash_bookkeeping"},
       {"flash_bookkeeping_fsdp", "flash_bookkeeping"}}};
  for (const auto& [alias, engine] : kAliases)
    if (alias == name) return engine;
  return name;
}

std::vector<std::vector<Overhead>> overheads(const std::vector<const RunData*>& runs,
                                             const Baseline& baseline) {
  std::vector<std::vector<Overhead>> all(runs.size());
  std::vector<Figures> figures;
  for (size_t r = 0; r < runs.size(); ++r) {
    all[r].resize(runs[r]->points.size());
    figures.emplace_back(*runs[r]);
  }
  std::string absence = "no baseline is picked";
  std::optional<PointPlace> one;
  std::optional<AxisPartners> partners;
  if (baseline.kind == Kind::Point) {
    one = find_point(runs, baseline);
    absence = fmt::format("the baseline, point {}, is not open any more", baseline.point);
  } else if (baseline.kind == Kind::Axis) {
    partners.emplace(runs, baseline);
    absence = fmt::format("no point with {} = {} and the same other options", baseline.axis,
                          baseline.value);
  }
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto found = partners ? partners->of_run(r) : std::vector<std::optional<PointPlace>>();
    for (size_t p = 0; p < runs[r]->points.size(); ++p)
      fill(figures, {r, p}, partners ? found[p] : one, absence, all[r][p]);
  }
  return all;
}

Baseline default_baseline(const std::vector<const RunData*>& runs) {
  for (const RunData* run : runs) {
    if (run->baseline_axis.empty()) continue;
    const std::string value(run->baseline_axis == "mode" ? canonical_mode(run->baseline_value)
                                                         : run->baseline_value);
    return {Kind::Axis, "", "", run->baseline_axis, value};
  }
  bool plain = false, others = false;
  for (const RunData* run : runs) {
    const auto column = run->options.find("mode");
    for (size_t p = 0; column && p < run->points.size(); ++p) {
      const bool is_plain = is_value(*run, run->options.at(p, *column), "mode", "none");
      plain = plain || is_plain;
      others = others || !is_plain;
    }
  }
  if (plain && others) return {Kind::Axis, "", "", "mode", "none"};
  return {};
}

std::vector<Baseline> baseline_choices(const std::vector<const RunData*>& runs) {
  std::vector<Baseline> choices;
  std::set<std::pair<std::string, std::string>> seen;
  for (const RunData* run : runs) {
    for (const std::string& axis : run->axes) {
      const auto column = run->options.find(axis);
      for (size_t p = 0; column && p < run->points.size(); ++p) {
        const Value& value = run->options.at(p, *column);
        if (value.kind == Value::Kind::None) continue;
        const std::string text = plain_text(*run, value);
        if (seen.insert({axis, text}).second) choices.push_back({Kind::Axis, "", "", axis, text});
      }
    }
  }
  return choices;
}

std::string describe(const Baseline& baseline, const std::vector<const RunData*>& runs) {
  if (baseline.kind == Kind::Axis) return fmt::format("{} = {}", baseline.axis, baseline.value);
  if (baseline.kind == Kind::None) return "no baseline";
  for (const RunData* run : runs)
    if (run->path == baseline.run) return fmt::format("point {} of {}", baseline.point, run->name);
  return fmt::format("point {} of a run that is not open", baseline.point);
}

}  // namespace moonshard::viewer
