#include "viewer/panels/run_table_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <unordered_set>

#include "runtime/records/schema.h"
#include "viewer/widgets/axis_names.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using ColumnKind = TableColumn::Kind;

constexpr size_t kMaxColumns = 400;  // a hostile folder may name any number of keys

// Metrics shown at first, in this order, where a run has them.
constexpr std::array<const char*, 6> kMainMetrics = {
    "median_time_ms", "avg_time_ms", "peak_memory_bytes", "tokens_per_s", "final_loss", "epsilon"};

constexpr size_t kMostTellingColumns = 3;
constexpr size_t kMostOwnColumns = 8;  // a script may measure anything

// Metrics that no experiment has: a script's own function measured them (record: own_metrics).
std::vector<std::string> own_metrics(const std::vector<std::string>& metrics) {
  static const std::unordered_set<std::string> known = [] {
    std::unordered_set<std::string> paths;
    for (const records::FieldInfo& field : records::result_fields()) paths.insert(field.path);
    return paths;
  }();
  std::vector<std::string> own;
  for (const std::string& key : metrics) {
    if (own.size() < kMostOwnColumns && !known.contains("metrics." + key)) own.push_back(key);
  }
  return own;
}

// The peak of the measured steps has a name of its own: memory panels show that of another step.
std::string title_of(const Workspace& workspace, const std::string& metric) {
  if (metric == "peak_memory_bytes")
    return workspace.shows_simulated_alone() ? "modelled peak" : "measured peak";
  return metric == "median_time_ms" ? "median" : metric_format(metric).title;  // with its unit
}

// Swept options that tell points of some run apart, in the order of the sweeps.
std::vector<std::string> telling_options(const Workspace& workspace) {
  std::vector<std::string> telling;
  for (const LoadedRun& loaded : workspace.snapshot().runs) {
    std::vector<size_t> all(loaded.data->points.size());
    for (size_t p = 0; p < all.size(); ++p) all[p] = p;
    const std::vector<std::string> axes =
        all.size() == 1 ? loaded.data->axes : telling_axes(*loaded.data, all);
    for (const std::string& axis : axes) {
      if (std::ranges::find(telling, axis) == telling.end()) telling.push_back(axis);
    }
  }
  return telling;
}

double overhead_number(const Overhead& overhead, const std::string& key) {
  return overhead.*find_overhead_figure(key)->value;
}

Value value_of(const Workspace& workspace, const TableColumn& column, PointRef ref) {
  const RunData& run = workspace.run(ref);
  return (column.kind == ColumnKind::Option ? run.options : run.metrics).get(ref.point, column.key);
}

// Texts of one run are shared, so that equal ones have equal places.
bool equal(const RunData& run_a, const Value& a, const RunData& run_b, const Value& b) {
  if (a.kind != b.kind) return false;
  if (a.kind != Value::Kind::Text) return a.number == b.number;
  return &run_a == &run_b ? a.text == b.text : run_a.text_of(a) == run_b.text_of(b);
}

// The number of a cell as it is stored; NaN where there is none.
double cell_number(const Workspace& workspace, const TableColumn& column, PointRef ref) {
  if (column.kind == ColumnKind::Overhead)
    return overhead_number(workspace.overhead(ref), column.key);
  if (column.kind != ColumnKind::Option && column.kind != ColumnKind::Metric) return NAN;
  const Value value = value_of(workspace, column, ref);
  return value.kind == Value::Kind::Number ? value.number : NAN;
}

struct SortKey {
  double number;
  std::string text;
};

// Negative, zero or positive, as a stands before, with or after b.
int compare(const SortKey& a, const SortKey& b) {
  const bool a_number = !std::isnan(a.number), b_number = !std::isnan(b.number);
  if (a_number && b_number) return (a.number > b.number) - (a.number < b.number);
  if (a_number != b_number) return a_number ? -1 : 1;
  return a.text.compare(b.text);
}

std::vector<PointRef> sorted_points(const Workspace& workspace, const TableOrder& order) {
  std::vector<PointRef> points = workspace.shown();
  if (!order.sort) return points;
  std::vector<std::pair<SortKey, PointRef>> keyed;
  keyed.reserve(points.size());
  for (const PointRef ref : points) {
    const double number = cell_number(workspace, *order.sort, ref);
    keyed.push_back(
        {{number, std::isnan(number) ? cell_text(workspace, *order.sort, ref) : ""}, ref});
  }
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    const bool pinned_a = workspace.pinned(a.second), pinned_b = workspace.pinned(b.second);
    if (pinned_a != pinned_b) return pinned_a;
    const bool empty_a = std::isnan(a.first.number) && a.first.text.empty();
    const bool empty_b = std::isnan(b.first.number) && b.first.text.empty();
    if (empty_a != empty_b) return empty_b;
    const int way = compare(a.first, b.first);
    return order.descending ? way > 0 : way < 0;
  });
  for (size_t i = 0; i < points.size(); ++i) points[i] = keyed[i].second;
  return points;
}

}  // namespace

void describe_columns(const Workspace& workspace, std::vector<TableColumn>& columns) {
  // Run by run instead of column by column: a run's values lie together in memory.
  struct Look {
    TableColumn* column;
    std::optional<size_t> place;
    const Value* first = nullptr;
    const RunData* first_run = nullptr;
    bool numbers = false, others = false;
    double largest = 0, least = INFINITY;
  };
  std::vector<Look> looks;
  for (TableColumn& column : columns) {
    column.numeric = column.differs = column.kind == ColumnKind::Overhead;
    if (column.kind == ColumnKind::Option || column.kind == ColumnKind::Metric) {
      looks.push_back({&column, std::nullopt});
    }
  }
  static const Value kNothing;
  const RunData* last = nullptr;
  for (const PointRef ref : workspace.shown()) {
    const RunData& run = workspace.run(ref);
    for (Look& look : looks) {
      const ValueTable& table = look.column->kind == ColumnKind::Option ? run.options : run.metrics;
      if (&run != last) look.place = table.find_near(look.column->key, look.place);
      const Value& value = look.place ? table.at(ref.point, *look.place) : kNothing;
      look.numbers |= value.kind == Value::Kind::Number;
      look.largest = std::max(look.largest, std::abs(value.number));
      if (value.kind == Value::Kind::Number)
        look.least = std::min(look.least, std::abs(value.number));
      look.others |= value.kind == Value::Kind::Text || value.kind == Value::Kind::Bool;
      if (!look.first) {
        look.first = &value;
        look.first_run = &run;
      } else if (!look.column->differs) {
        look.column->differs = !equal(*look.first_run, *look.first, run, value);
      }
    }
    last = &run;
  }
  for (const Look& look : looks) {
    TableColumn& column = *look.column;
    column.numeric = look.numbers && !look.others;
    if (column.kind != ColumnKind::Metric) continue;
    if (column.key.ends_with("_per_s") && are_millions(look.least, look.largest)) {
      column.title = with_unit(title_of(workspace, column.key), "million");
      column.factor = 1e-6;
    }
    if (!column.key.ends_with("_bytes")) continue;
    // Gibibytes where mebibytes would have five digits.
    const bool large = look.largest >= 10.0 * (1 << 30);
    column.title = with_unit(title_of(workspace, column.key), large ? "GiB" : "MiB");
    column.factor = large ? 1.0 / (1 << 30) : 1.0 / (1 << 20);
  }
}

std::string TableColumn::id() const {
  static constexpr const char* kWords[] = {"run",      "status", "option", "metric",
                                           "overhead", "id",     "error",  "name"};
  return std::string(kWords[static_cast<size_t>(kind)]) + ":" + key;
}

std::vector<TableColumn> all_columns(const Workspace& workspace) {
  std::vector<TableColumn> columns;
  std::unordered_set<std::string> known;
  const auto add = [&](ColumnKind kind, const std::string& key, bool main) {
    TableColumn column{kind, key, key, 1.0, false, false, main};
    if (columns.size() >= kMaxColumns || !known.insert(column.id()).second) return;
    if (kind == ColumnKind::Metric) {
      const MetricFormat format = metric_format(key);
      column.title = with_unit(title_of(workspace, key), format.unit);
      column.factor = format.factor;
    } else if (kind == ColumnKind::Overhead) {
      column.title = find_overhead_figure(key)->column;
      column.factor = find_overhead_figure(key)->factor;
    }
    columns.push_back(std::move(column));
  };
  if (workspace.snapshot().runs.size() > 1) add(ColumnKind::Run, "run", true);
  const std::vector<std::string> telling = telling_options(workspace);
  // Many columns of options would push time and memory off the screen.
  const bool as_words = telling.size() > kMostTellingColumns;
  add(ColumnKind::Name, "point", as_words);
  for (const std::string& axis : telling) {
    if (!as_words) add(ColumnKind::Option, axis, true);
  }
  const std::vector<std::string>& metrics = workspace.metric_keys();
  const auto has = [&](std::string_view key) {
    return std::ranges::find(metrics, key) != metrics.end();
  };
  const bool median = has("median_time_ms");
  const bool compares = workspace.baseline().kind != Baseline::Kind::None;
  for (const char* metric : kMainMetrics) {
    if (!has(metric)) continue;
    add(ColumnKind::Metric, metric, !(median && std::string_view(metric) == "avg_time_ms"));
    if (std::string_view(metric) != "peak_memory_bytes" || !compares) continue;
    for (const OverheadFigure& figure : kOverheadFigures)
      add(ColumnKind::Overhead, figure.key, &figure < &kOverheadFigures[2]);
  }
  for (const OverheadFigure& figure : kOverheadFigures) {
    if (compares) add(ColumnKind::Overhead, figure.key, &figure < &kOverheadFigures[2]);
  }
  for (const std::string& key : own_metrics(metrics)) add(ColumnKind::Metric, key, true);
  add(ColumnKind::Status, "status", true);
  for (const std::string& axis : telling) add(ColumnKind::Option, axis, true);
  for (const std::string& axis : workspace.keys().axes) add(ColumnKind::Option, axis, false);
  for (const std::string& key : workspace.metric_keys()) add(ColumnKind::Metric, key, false);
  for (const std::string& key : workspace.keys().options) add(ColumnKind::Option, key, false);
  add(ColumnKind::Id, "id", false);
  add(ColumnKind::Error, "error", false);
  return columns;
}

std::string cell_text(const Workspace& workspace, const TableColumn& column, PointRef ref) {
  const PointHead& head = workspace.head(ref);
  if (column.kind == ColumnKind::Run) return clean_text(workspace.run(ref).name, 256);
  if (column.kind == ColumnKind::Name) return workspace.words(ref);
  if (column.kind == ColumnKind::Status) return clean_text(head.status, 64);
  if (column.kind == ColumnKind::Id) return head.id;
  if (column.kind == ColumnKind::Error) return clean_text(head.error, 512);
  if (column.kind == ColumnKind::Overhead) {
    const double number = overhead_number(workspace.overhead(ref), column.key);
    return std::isnan(number) ? "" : format_number(number * column.factor);
  }
  const Value value = value_of(workspace, column, ref);
  if (column.kind == ColumnKind::Metric && value.kind == Value::Kind::Number)
    return format_number(value.number * column.factor);
  return clean_text(value_text(workspace.run(ref), value), 256);
}

std::vector<TableLine> table_lines(const Workspace& workspace, const TableOrder& order) {
  const std::vector<PointRef> points = sorted_points(workspace, order);
  std::vector<TableLine> lines;
  if (!order.group) {
    for (const PointRef ref : points) lines.push_back({false, ref, "", 0});
    return lines;
  }
  std::vector<std::string> names;  // in order of first appearance
  std::map<std::string, std::vector<PointRef>> members;
  for (const PointRef ref : points) {
    const std::string text = cell_text(workspace, *order.group, ref);
    std::vector<PointRef>& group = members[text];
    if (group.empty()) names.push_back(text);
    group.push_back(ref);
  }
  for (const std::string& name : names) {
    const std::vector<PointRef>& group = members[name];
    lines.push_back({true, {}, name, group.size()});
    if (order.closed.contains(name)) continue;
    for (const PointRef ref : group) lines.push_back({false, ref, "", 0});
  }
  return lines;
}

}  // namespace moonshard::viewer
