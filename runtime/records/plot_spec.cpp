#include "runtime/records/plot_spec.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace moonshard::records {
namespace {

constexpr std::array<std::pair<PlotKind, const char*>, 6> kKinds = {
    {{PlotKind::Bars, "bars"},
     {PlotKind::StackedBars, "stacked_bars"},
     {PlotKind::Lines, "lines"},
     {PlotKind::StackedArea, "stacked_area"},
     {PlotKind::Scatter, "scatter"},
     {PlotKind::HeatMap, "heat_map"}}};
constexpr size_t kMaxPanels = 16, kMaxSeries = 256, kMaxPoints = 5'000'000;
constexpr size_t kMaxBands = 1000, kMaxReferences = 64;
constexpr int kMaxColor = 1000;

// Reads one spec and knows where in it the reader stands, so that an error names the place.
class SpecReader {
 public:
  explicit SpecReader(std::string where) : where_(std::move(where)) {}

  PlotSpec read(const Json& value) const {
    expect(value.is_object(), "a plot spec object", value);
    const double version = number_or(value, "schema_version", 0);
    if (version < 1 || version > kSchemaVersion) {
      fail(fmt::format("schema_version 1 to {}", kSchemaVersion), fmt::format("{}", version));
    }
    PlotSpec spec;
    spec.title = string_or(value, "title", "");
    spec.note = string_or(value, "note", "");
    spec.width = whole(value, "width", spec.width, 64, 16384);
    spec.height = whole(value, "height", spec.height, 64, 16384);
    spec.columns = whole(value, "columns", 0, 0, kMaxPanels);
    for (const Json& panel : list(value, "panels", kMaxPanels))
      spec.panels.push_back(read_panel(panel));
    if (spec.panels.empty()) fail("at least one panel", "none");
    return spec;
  }

 private:
  PlotPanel read_panel(const Json& value) const {
    expect(value.is_object(), "a panel object", value);
    PlotPanel panel;
    panel.kind = read_kind(string_or(value, "kind", ""));
    panel.title = string_or(value, "title", "");
    panel.x = read_axis(value, "x");
    panel.y = read_axis(value, "y");
    panel.value = read_axis(value, "value");
    if (value.contains("horizontal")) {
      expect(value.at("horizontal").is_boolean(), "true or false for horizontal",
             value.at("horizontal"));
      panel.horizontal = value.at("horizontal").get<bool>();
    }
    for (const Json& series : list(value, "series", kMaxSeries)) {
      panel.series.push_back(read_series(series, panel.x));
    }
    for (const Json& band : list(value, "bands", kMaxBands)) panel.bands.push_back(read_band(band));
    for (const Json& reference : list(value, "references", kMaxReferences)) {
      panel.references.push_back(read_reference(reference));
    }
    check_kind(panel);
    return panel;
  }

  PlotKind read_kind(const std::string& name) const {
    for (const auto& [kind, text] : kKinds) {
      if (name == text) return kind;
    }
    fail("kind bars, stacked_bars, lines, stacked_area, scatter or heat_map", "'" + name + "'");
  }

  // What one kind needs beyond the others.
  void check_kind(const PlotPanel& panel) const {
    if (panel.kind == PlotKind::HeatMap && panel.x.categories.empty()) {
      fail("x categories for a heat_map", "none");
    }
    if (panel.kind != PlotKind::StackedArea) return;
    for (const PlotSeries& series : panel.series) {
      if (series.x != panel.series.front().x) {
        fail("the same x values in all series of a stacked_area",
             fmt::format("others in series '{}'", series.name));
      }
      for (size_t i = 1; i < series.x.size(); ++i) {
        if (!(series.x[i] >= series.x[i - 1])) {
          fail("x values of a stacked_area in rising order",
               fmt::format("{} after {}", series.x[i], series.x[i - 1]));
        }
      }
    }
  }

  PlotAxis read_axis(const Json& panel, const char* key) const {
    PlotAxis axis;
    if (!panel.contains(key)) return axis;
    const Json& value = panel.at(key);
    expect(value.is_object(), std::string("an axis object for ") + key, value);
    axis.label = string_or(value, "label", "");
    axis.unit = string_or(value, "unit", "");
    axis.log_scale = string_or(value, "scale", "linear") == "log";
    axis.categories = strings(value, "categories");
    axis.min = maybe_number(value, "min");
    axis.max = maybe_number(value, "max");
    if (axis.min && axis.max && !(*axis.min < *axis.max)) {
      fail(fmt::format("min below max of axis {}", key),
           fmt::format("{} and {}", *axis.min, *axis.max));
    }
    return axis;
  }

  PlotSeries read_series(const Json& value, const PlotAxis& x_axis) const {
    expect(value.is_object(), "a series object", value);
    PlotSeries series;
    series.name = string_or(value, "name", "");
    series.stack = string_or(value, "stack", "");
    series.color = whole(value, "color", -1, -1, kMaxColor);
    series.y = maybe_numbers(value, "y");
    for (const Json& x : list(value, "x", kMaxPoints)) series.x.push_back(read_x(x, x_axis));
    series.labels = strings(value, "labels");
    series.status = strings(value, "status");
    series.texts = strings(value, "texts");
    series.low = maybe_numbers(value, "low");
    series.high = maybe_numbers(value, "high");
    check_length("x", series.x.size(), series.y.size(), series.name);
    for (const auto& [what, size] : {std::pair("labels", series.labels.size()),
                                     {"status", series.status.size()},
                                     {"texts", series.texts.size()},
                                     {"low", series.low.size()},
                                     {"high", series.high.size()}}) {
      if (size > 0) check_length(what, size, series.y.size(), series.name);
    }
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (std::isnan(series.x[i]) && series.y[i]) fail("an x beside every y", "null");
    }
    return series;
  }

  double read_x(const Json& x, const PlotAxis& axis) const {
    if (x.is_null() && axis.categories.empty()) return std::numeric_limits<double>::quiet_NaN();
    expect(x.is_number(), "a number in x", x);
    const double place = x.get<double>();
    const bool known = axis.categories.empty() ||
                       (place >= 0 && place < static_cast<double>(axis.categories.size()));
    expect(known, fmt::format("x below {} (the categories)", axis.categories.size()), x);
    return place;
  }

  PlotBand read_band(const Json& value) const {
    expect(value.is_object(), "a band object", value);
    PlotBand band{number(value, "from"), number(value, "to"), string_or(value, "label", "")};
    if (!(band.from <= band.to)) {
      fail("a band's from not above its to", fmt::format("{} and {}", band.from, band.to));
    }
    return band;
  }

  PlotReference read_reference(const Json& value) const {
    expect(value.is_object(), "a reference object", value);
    PlotReference reference;
    reference.text = string_or(value, "text", "");
    reference.series = string_or(value, "series", "");
    for (const auto& [key, target] : {std::pair("x", &reference.x), {"y", &reference.y}}) {
      for (const Json& item : list(value, key, 10'000)) {
        expect(item.is_number(), std::string("a number in ") + key + " of a reference", item);
        target->push_back(item.get<double>());
      }
    }
    const size_t x = reference.x.size(), y = reference.y.size();
    const bool one = x + y == 1, curve = x == y && x >= 2;
    if (!one && !curve) {
      fail("a reference with one x, one y, or as many of both", fmt::format("{} and {}", x, y));
    }
    return reference;
  }

  void check_length(const char* what, size_t got, size_t wanted, const std::string& series) const {
    if (got == wanted) return;
    fail(fmt::format("{} values in {} of series '{}'", wanted, what, series),
         fmt::format("{}", got));
  }

  int whole(const Json& value, const char* key, int fallback, int least, int most) const {
    const double found = number_or(value, key, fallback);
    if (found >= least && found <= most) return static_cast<int>(found);
    fail(fmt::format("{} from {} to {}", key, least, most), fmt::format("{}", found));
  }

  double number(const Json& object, const char* key) const {
    const std::optional<double> found = maybe_number(object, key);
    if (!found) fail(std::string("a number for ") + key, "nothing");
    return *found;
  }

  std::optional<double> maybe_number(const Json& object, const char* key) const {
    if (!object.contains(key) || object.at(key).is_null()) return std::nullopt;
    expect(object.at(key).is_number(), std::string("a number for ") + key, object.at(key));
    return object.at(key).get<double>();
  }

  MaybeNumbers maybe_numbers(const Json& object, const char* key) const {
    MaybeNumbers result;
    for (const Json& item : list(object, key, kMaxPoints)) {
      expect(item.is_number() || item.is_null(), std::string("a number or null in ") + key, item);
      // A number too large for a double is infinite, and no more a figure than a null is.
      const bool figure = item.is_number() && std::isfinite(item.get<double>());
      result.push_back(figure ? std::optional(item.get<double>()) : std::nullopt);
    }
    return result;
  }

  const Json& list(const Json& object, const char* key, size_t limit) const {
    static const Json empty = Json::array();
    if (!object.contains(key)) return empty;
    const Json& value = object.at(key);
    expect(value.is_array(), std::string("a list for ") + key, value);
    if (value.size() > limit)
      fail(fmt::format("at most {} {}", limit, key), fmt::format("{}", value.size()));
    return value;
  }

  std::vector<std::string> strings(const Json& object, const char* key) const {
    std::vector<std::string> result;
    for (const Json& item : list(object, key, kMaxPoints)) {
      expect(item.is_string(), std::string("a string in ") + key, item);
      result.push_back(item.get<std::string>());
    }
    return result;
  }

  void expect(bool holds, const std::string& wanted, const Json& got) const {
    if (!holds) fail(wanted, got.is_structured() ? got.type_name() : one_line(got).substr(0, 60));
  }

  [[noreturn]] void fail(const std::string& wanted, const std::string& got) const {
    throw IoError(fmt::format("{}: expected {}, got {}; see docs/plots.md", where_, wanted, got));
  }

  std::string where_;
};

Json numbers_to_json(const MaybeNumbers& numbers) {
  Json list = Json::array();
  for (const auto& value : numbers) list.push_back(value ? Json(*value) : Json(nullptr));
  return list;
}

Json axis_to_json(const PlotAxis& axis) {
  Json value{
      {"label", axis.label}, {"unit", axis.unit}, {"scale", axis.log_scale ? "log" : "linear"}};
  if (!axis.categories.empty()) value["categories"] = axis.categories;
  if (axis.min) value["min"] = *axis.min;
  if (axis.max) value["max"] = *axis.max;
  return value;
}

Json series_to_json(const PlotSeries& series) {
  Json x = Json::array();
  for (const double place : series.x) x.push_back(std::isnan(place) ? Json(nullptr) : Json(place));
  Json entry{{"name", series.name}, {"x", std::move(x)}, {"y", numbers_to_json(series.y)}};
  if (!series.stack.empty()) entry["stack"] = series.stack;
  if (series.color >= 0) entry["color"] = series.color;
  if (!series.labels.empty()) entry["labels"] = series.labels;
  if (!series.status.empty()) entry["status"] = series.status;
  if (!series.texts.empty()) entry["texts"] = series.texts;
  if (!series.low.empty()) entry["low"] = numbers_to_json(series.low);
  if (!series.high.empty()) entry["high"] = numbers_to_json(series.high);
  return entry;
}

Json panel_to_json(const PlotPanel& panel) {
  Json all_series = Json::array(), bands = Json::array(), references = Json::array();
  for (const PlotSeries& series : panel.series) all_series.push_back(series_to_json(series));
  for (const PlotBand& band : panel.bands) {
    bands.push_back(Json{{"from", band.from}, {"to", band.to}, {"label", band.label}});
  }
  for (const PlotReference& reference : panel.references) {
    Json entry{{"text", reference.text}, {"x", reference.x}, {"y", reference.y}};
    if (!reference.series.empty()) entry["series"] = reference.series;
    references.push_back(std::move(entry));
  }
  Json value{{"kind", kKinds[static_cast<size_t>(panel.kind)].second},
             {"title", panel.title},
             {"x", axis_to_json(panel.x)},
             {"y", axis_to_json(panel.y)}};
  if (panel.kind == PlotKind::HeatMap) value["value"] = axis_to_json(panel.value);
  if (panel.horizontal) value["horizontal"] = true;
  value["series"] = std::move(all_series);
  if (!bands.empty()) value["bands"] = std::move(bands);
  if (!references.empty()) value["references"] = std::move(references);
  return value;
}

}  // namespace

PlotSpec plot_spec_from_json(const Json& value, const std::string& where) {
  return SpecReader(where).read(value);
}

Json to_json(const PlotSpec& spec) {
  Json panels = Json::array();
  for (const PlotPanel& panel : spec.panels) panels.push_back(panel_to_json(panel));
  Json value{{"schema_version", kSchemaVersion}, {"title", spec.title}};
  if (!spec.note.empty()) value["note"] = spec.note;
  value["width"] = spec.width;
  value["height"] = spec.height;
  if (spec.columns > 0) value["columns"] = spec.columns;
  value["panels"] = std::move(panels);
  return value;
}

}  // namespace moonshard::records
