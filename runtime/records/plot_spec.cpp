#include "runtime/records/plot_spec.h"

#include <array>
#include <utility>

namespace moonshard::records {
namespace {

constexpr std::array<std::pair<PlotKind, const char*>, 3> kKinds = {
    {{PlotKind::Bars, "bars"}, {PlotKind::Lines, "lines"}, {PlotKind::Scatter, "scatter"}}};
constexpr size_t kMaxPanels = 16, kMaxSeries = 256, kMaxPoints = 5'000'000;

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
    spec.width = size(value, "width", spec.width);
    spec.height = size(value, "height", spec.height);
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
    for (const Json& series : list(value, "series", kMaxSeries)) {
      panel.series.push_back(read_series(series, panel.x));
    }
    return panel;
  }

  PlotKind read_kind(const std::string& name) const {
    for (const auto& [kind, text] : kKinds) {
      if (name == text) return kind;
    }
    fail("kind bars, lines or scatter", "'" + name + "'");
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
    return axis;
  }

  PlotSeries read_series(const Json& value, const PlotAxis& x_axis) const {
    expect(value.is_object(), "a series object", value);
    PlotSeries series;
    series.name = string_or(value, "name", "");
    for (const Json& y : list(value, "y", kMaxPoints)) {
      expect(y.is_number() || y.is_null(), "a number or null in y", y);
      series.y.push_back(y.is_null() ? std::nullopt : std::optional(y.get<double>()));
    }
    for (const Json& x : list(value, "x", kMaxPoints)) {
      expect(x.is_number(), "a number in x", x);
      series.x.push_back(x.get<double>());
      const bool known =
          x_axis.categories.empty() ||
          (series.x.back() >= 0 && series.x.back() < static_cast<double>(x_axis.categories.size()));
      expect(known, fmt::format("x below {} (the categories)", x_axis.categories.size()), x);
    }
    series.labels = strings(value, "labels");
    series.status = strings(value, "status");
    check_length("x", series.x.size(), series.y.size(), series.name);
    if (!series.labels.empty())
      check_length("labels", series.labels.size(), series.y.size(), series.name);
    if (!series.status.empty())
      check_length("status", series.status.size(), series.y.size(), series.name);
    return series;
  }

  void check_length(const char* what, size_t got, size_t wanted, const std::string& series) const {
    if (got == wanted) return;
    fail(fmt::format("{} values in {} of series '{}'", wanted, what, series),
         fmt::format("{}", got));
  }

  int size(const Json& value, const char* key, int fallback) const {
    const double pixels = number_or(value, key, fallback);
    if (pixels >= 64 && pixels <= 16384) return static_cast<int>(pixels);
    fail(fmt::format("{} from 64 to 16384 pixels", key), fmt::format("{}", pixels));
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
    if (!holds) fail(wanted, got.is_structured() ? got.type_name() : got.dump().substr(0, 60));
  }

  [[noreturn]] void fail(const std::string& wanted, const std::string& got) const {
    throw IoError(fmt::format("{}: expected {}, got {}; see docs/plots.md", where_, wanted, got));
  }

  std::string where_;
};

Json axis_to_json(const PlotAxis& axis) {
  Json value{
      {"label", axis.label}, {"unit", axis.unit}, {"scale", axis.log_scale ? "log" : "linear"}};
  if (!axis.categories.empty()) value["categories"] = axis.categories;
  return value;
}

}  // namespace

PlotSpec plot_spec_from_json(const Json& value, const std::string& where) {
  return SpecReader(where).read(value);
}

Json to_json(const PlotSpec& spec) {
  Json panels = Json::array();
  for (const PlotPanel& panel : spec.panels) {
    Json all_series = Json::array();
    for (const PlotSeries& series : panel.series) {
      Json y = Json::array();
      for (const auto& value : series.y) y.push_back(value ? Json(*value) : Json(nullptr));
      Json entry{{"name", series.name}, {"x", series.x}, {"y", y}};
      if (!series.labels.empty()) entry["labels"] = series.labels;
      if (!series.status.empty()) entry["status"] = series.status;
      all_series.push_back(std::move(entry));
    }
    const char* kind = kKinds[static_cast<size_t>(panel.kind)].second;
    panels.push_back(Json{{"kind", kind},
                          {"title", panel.title},
                          {"x", axis_to_json(panel.x)},
                          {"y", axis_to_json(panel.y)},
                          {"series", std::move(all_series)}});
  }
  return Json{{"schema_version", kSchemaVersion},
              {"title", spec.title},
              {"width", spec.width},
              {"height", spec.height},
              {"panels", std::move(panels)}};
}

}  // namespace moonshard::records
