#include "runtime/analysis/overhead.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

namespace moonshard::analysis {
namespace {

using records::Metrics;
using Names = std::vector<std::string>;
using PlaceIndex = std::unordered_map<std::string, Place>;
using Partners = std::vector<std::optional<Place>>;

// Places of options among a table's columns; -1 for one that it lacks, which no row has a value of.
std::vector<ptrdiff_t> columns_of(const Table& table, const Names& names) {
  std::vector<ptrdiff_t> columns;
  for (const std::string& name : names) {
    const auto found = std::find(table.options.begin(), table.options.end(), name);
    columns.push_back(found == table.options.end() ? -1 : found - table.options.begin());
  }
  return columns;
}

// The values of some options as one text: kinds apart, for the text "1" is not the number 1, and
// with lengths, so that "a" "bc" is not "ab" "c".
std::string key_of(const Row& row, const std::vector<ptrdiff_t>& columns) {
  std::string key;
  const auto append = [&](const auto& bytes) {
    key.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  };
  static const Value kNone;
  for (const ptrdiff_t column : columns) {
    const Value& value = column < 0 ? kNone : row.values[static_cast<size_t>(column)];
    key += static_cast<char>('0' + static_cast<int>(value.index()));
    if (const auto* text = std::get_if<std::string>(&value)) {
      append(text->size());
      key += *text;
    } else if (const auto* number = std::get_if<double>(&value)) {
      append(*number == 0 ? 0.0 : *number);  // -0 is 0
    } else if (const auto* truth = std::get_if<bool>(&value)) {
      key += *truth ? '1' : '0';
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

// Options that say how a point is measured, or that only one engine reads: a point of another value
// is still the same training.
bool is_side_option(const std::string& option, const std::string& axis) {
  constexpr std::string_view kMeasuring[] = {"profile", "iters", "warmup", "memory_history"};
  constexpr std::string_view kOfEngines[] = {"memory_budget_mb", "tile_size", "flash_algorithm"};
  return std::ranges::find(kMeasuring, option) != std::end(kMeasuring) ||
         (axis == "mode" && std::ranges::find(kOfEngines, option) != std::end(kOfEngines));
}

bool sweeps_side_options(const std::vector<Table>& tables, const std::string& axis) {
  return std::ranges::any_of(tables, [&](const Table& table) {
    return std::ranges::any_of(table.axes,
                               [&](const std::string& name) { return is_side_option(name, axis); });
  });
}

// Finds the partner of each row for a baseline on an axis. Tables that sweep the same options share
// their indices: a thousand runs have a few of them.
class AxisPartners {
 public:
  /// With `loosely`, options on the side may differ.
  AxisPartners(const std::vector<Table>& tables, const AxisBaseline& baseline, bool loosely)
      : tables_(tables), axis_(baseline.axis), value_(baseline.value) {
    for (size_t t = 0; t < tables.size(); ++t) {
      Names axes = tables[t].axes;
      if (loosely)
        std::erase_if(axes, [&](const std::string& name) { return is_side_option(name, axis_); });
      by_axes_[axes].push_back(t);
      axes_.push_back(std::move(axes));
    }
  }

  Partners of_table(size_t t) {
    const size_t count = tables_[t].rows.size();
    Partners partners(count), others(count);
    const Group& group = group_of(axes_[t]);
    PlaceIndex own;
    add_to(own, t, group.axes);
    look_up(t, group.axes, own, partners);
    for (const auto& [index, joined] : group.indices) {
      if (std::all_of(partners.begin(), partners.end(), [](const auto& p) { return bool(p); }))
        break;
      look_up(t, joined, *index, others);
    }
    for (size_t r = 0; r < count; ++r)
      if (!partners[r]) partners[r] = others[r];
    return partners;
  }

 private:
  // What tables that sweep the same options have in common.
  struct Group {
    Names axes;                                                // without the baseline's
    std::vector<std::pair<const PlaceIndex*, Names>> indices;  // of all groups, by joined axes
  };

  const Group& group_of(const Names& axes) {
    const auto [place, added] = groups_.try_emplace(axes);
    Group& group = place->second;
    if (!added) return group;
    group.axes = joined_without(axes, {}, axis_);
    for (const auto& [other_axes, members] : by_axes_) {
      const Names joined = joined_without(axes, other_axes, axis_);
      group.indices.emplace_back(&shared_index(other_axes, joined, members), joined);
    }
    return group;
  }

  void look_up(size_t t, const Names& names, const PlaceIndex& index, Partners& partners) const {
    if (index.empty()) return;
    const std::vector<ptrdiff_t> columns = columns_of(tables_[t], names);
    for (size_t r = 0; r < partners.size(); ++r) {
      const auto found = index.find(key_of(tables_[t].rows[r], columns));
      if (found == index.end()) continue;
      // Of several groups of tables the one that was opened first.
      if (!partners[r] || found->second.run < partners[r]->run) partners[r] = found->second;
    }
  }

  void add_to(PlaceIndex& index, size_t t, const Names& names) const {
    const Table& table = tables_[t];
    const ptrdiff_t axis = columns_of(table, {axis_}).front();
    if (axis < 0) return;
    const std::vector<ptrdiff_t> columns = columns_of(table, names);
    for (size_t r = 0; r < table.rows.size(); ++r)
      if (is_asked(table.rows[r].values[static_cast<size_t>(axis)], value_))
        index.try_emplace(key_of(table.rows[r], columns), Place{t, r});
  }

  const PlaceIndex& shared_index(const Names& axes, const Names& joined,
                                 const std::vector<size_t>& members) {
    const auto [place, added] = shared_.try_emplace({axes, joined});
    if (added)
      for (const size_t t : members) add_to(place->second, t, joined);
    return place->second;
  }

  const std::vector<Table>& tables_;
  const std::string& axis_;
  const Value& value_;
  std::vector<Names> axes_;  // of each table
  std::map<Names, std::vector<size_t>> by_axes_;
  std::map<std::pair<Names, Names>, PlaceIndex> shared_;
  std::map<Names, Group> groups_;
};

double ratio_of(double own, double other) {
  return other > 0 && std::isfinite(other) && std::isfinite(own) ? own / other : NAN;
}

// The same figure of both: a median is not compared with a mean.
double first_ratio(const Metrics& own, const Metrics& other, double Metrics::*first,
                   double Metrics::*second) {
  const double ratio = ratio_of(own.*first, other.*first);
  return std::isnan(ratio) ? ratio_of(own.*second, other.*second) : ratio;
}

void compare(const Metrics& own, const Metrics& other, Overhead& overhead) {
  const double own_bytes = peak_bytes(own), other_bytes = peak_bytes(other);
  if (std::isfinite(own_bytes) && std::isfinite(other_bytes)) {
    overhead.memory_bytes = own_bytes - other_bytes;
    overhead.memory_percent = ratio_of(100 * overhead.memory_bytes, other_bytes);
  }
  overhead.time_ratio = first_ratio(own, other, &Metrics::median_time_ms, &Metrics::avg_time_ms);
  overhead.throughput_ratio =
      first_ratio(own, other, &Metrics::tokens_per_s, &Metrics::samples_per_s);
}

Overhead overhead_of(const std::vector<Table>& tables, Place own,
                     const std::optional<Place>& partner, const std::string& why_none) {
  Overhead overhead;
  overhead.partner = partner;
  overhead.is_baseline = partner == own;
  const Row& row = tables[own.run].rows[own.point];
  const Row* other = partner ? &tables[partner->run].rows[partner->point] : nullptr;
  if (!row.ok()) {
    overhead.why_none = "status " + row.status + ": no figures to compare";
  } else if (other == nullptr) {
    overhead.why_none = why_none;
  } else if (!other->ok()) {
    overhead.why_none =
        fmt::format("its baseline, point {}, has status {}", other->label, other->status);
  } else {
    overhead.baseline = partner;
    compare(row.metrics, other->metrics, overhead);
  }
  return overhead;
}

Overheads all_overheads(const std::vector<Table>& tables,
                        const std::function<Partners(size_t)>& partners_of,
                        const std::string& why_none) {
  Overheads all(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    const Partners partners = partners_of(t);
    for (size_t r = 0; r < tables[t].rows.size(); ++r)
      all[t].push_back(overhead_of(tables, {t, r}, partners[r], why_none));
  }
  return all;
}

}  // namespace

Overheads overheads_on_axis(const std::vector<Table>& tables, const AxisBaseline& baseline) {
  AxisPartners exact(tables, baseline, false);
  std::optional<AxisPartners> loose;
  if (sweeps_side_options(tables, baseline.axis)) loose.emplace(tables, baseline, true);
  const auto partners_of = [&](size_t t) {
    Partners found = exact.of_table(t);
    if (!loose || std::all_of(found.begin(), found.end(), [](const auto& p) { return bool(p); }))
      return found;
    const Partners others = loose->of_table(t);
    for (size_t r = 0; r < found.size(); ++r)
      if (!found[r]) found[r] = others[r];
    return found;
  };
  return all_overheads(tables, partners_of,
                       fmt::format("no point with {} = {} and the same other options",
                                   baseline.axis, baseline.shown));
}

Overheads overheads_against(const std::vector<Table>& tables, const std::optional<Place>& baseline,
                            const std::string& why_none) {
  return all_overheads(
      tables, [&](size_t t) { return Partners(tables[t].rows.size(), baseline); }, why_none);
}

}  // namespace moonshard::analysis
