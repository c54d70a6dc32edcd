// The details panel: all that is known of the selected point (error, metrics, options), or of the
// run folder itself when no point is selected.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <imgui.h>

#include "runtime/records/schema_json.h"
#include "viewer/panels/panel.h"
#include "viewer/widgets/definitions.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/metric_groups.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

class DetailsPanel final : public Panel {
 public:
  DetailsPanel() : Panel({"details", "Details", DockPlace::Side}) {}

  void draw(const PanelContext& context) override {
    const std::optional<size_t> run = context.workspace.selected_run();
    if (!run) {
      show_empty_state("No folder is open", "Press Ctrl+O, or drop a run folder here.",
                       context.style);
    } else if (const std::optional<PointRef> point = context.workspace.selected_point()) {
      draw_point(context, *point);
    } else {
      draw_run(context, context.snapshot.runs[*run]);
    }
  }

 private:
  void draw_point(const PanelContext& context, PointRef ref) {
    const UiStyle& style = context.style;
    const PointHead& head = context.workspace.head(ref);
    ImGui::PushFont(style.bold, 0.0f);
    show_wrapped(context.workspace.short_name(ref), style.colors().text);
    ImGui::PopFont();
    show_status(clean_text(head.status, 64), style);
    ImGui::SameLine();
    show_text(head.id, style.colors().muted_text);
    if (!head.error.empty()) {
      show_wrapped(clean_lines(head.error, 8192), status_color(head.status, style.theme));
    }
    ImGui::SetNextItemWidth(-1);
    ImGui::InputTextWithHint("##find", "find an option or a metric", find_, sizeof find_);
    const RunData& run = context.workspace.run(ref);
    draw_overhead(context, ref);
    draw_metrics(run, ref.point, context.workspace.is_simulated(ref), style);
    if (const auto detail = context.detail(ref).value) draw_record(*detail, style);
    draw_options(run, ref.point, style);
  }

  // Parts of the record that no other panel shows.
  void draw_record(const PointDetail& detail, const UiStyle& style) const {
    Lines outcome;
    add_text(outcome, "phase", detail.phase);
    add_figure(outcome, "bytes_asked", detail.bytes_asked);
    add_figure(outcome, "bytes_free", detail.bytes_free);
    add_figure(outcome, "attempts", detail.attempts);
    add_text(outcome, "memory_history", detail.memory_history);
    add_text(outcome, "why_no_memory_history", detail.why_no_memory_history);
    add_text(outcome, "log_tail", detail.log_tail);
    draw_lines("Outcome", std::move(outcome), style);
    draw_lines("Ranks", rank_lines(detail.sharding), style);
    Lines data;
    for (const TextPair& line : detail.data_lines) add_text(data, line.key, line.value);
    draw_lines("Data", std::move(data), style);
  }

  void draw_overhead(const PanelContext& context, PointRef ref) const {
    const Overhead& overhead = context.workspace.overhead(ref);
    if (context.workspace.baseline().kind == Baseline::Kind::None) return;
    ImGui::Spacing();
    show_bold("Against " + context.workspace.baseline_text(), context.style);
    if (!overhead.baseline) {
      show_wrapped(clean_text(overhead.why_none), context.style.colors().muted_text);
      return;
    }
    if (overhead.is_baseline) show_text("This point is the baseline.");
    if (!std::isnan(overhead.time_ratio)) {
      show_text(fmt::format("time x {}", format_number(overhead.time_ratio)));
    }
    if (!std::isnan(overhead.memory_bytes)) {
      show_text(fmt::format("memory {}{} ({}{} %)", overhead.memory_bytes < 0 ? "" : "+",
                            format_bytes(overhead.memory_bytes),
                            overhead.memory_percent < 0 ? "" : "+",
                            format_number(overhead.memory_percent)));
    }
  }

  // By subject, in their display units.
  void draw_metrics(const RunData& run, size_t point, bool simulated, const UiStyle& style) const {
    std::vector<std::string> present;
    std::vector<size_t> places;
    for (size_t k = 0; k < run.metrics.keys.size(); ++k) {
      if (run.metrics.at(point, k).kind == Value::Kind::None) continue;
      present.push_back(run.metrics.keys[k]);
      places.push_back(k);
    }
    for (const MetricGroup& group : metric_groups(present)) {
      Lines lines;
      for (const size_t at : group.keys) {
        const std::string& key = present[at];
        const Value& value = run.metrics.at(point, places[at]);
        const bool peak = simulated && key == "peak_memory_bytes";
        lines.push_back(
            {key, peak ? "modelled peak memory" : metric_title(key), metric_text(run, key, value)});
      }
      draw_lines(group.title, std::move(lines), style);
    }
  }

  void draw_options(const RunData& run, size_t point, const UiStyle& style) const {
    Lines lines;
    for (size_t k = 0; k < run.options.keys.size(); ++k) {
      const Value& value = run.options.at(point, k);
      if (value.kind == Value::Kind::None) continue;
      const std::string& key = run.options.keys[k];
      lines.push_back({key, key, clean_text(value_text(run, value), 1024)});
    }
    draw_lines("Options", std::move(lines), style);
  }

  static std::string metric_text(const RunData& run, const std::string& key, const Value& value) {
    if (value.kind != Value::Kind::Number) return clean_text(value_text(run, value), 1024);
    if (key.ends_with("_bytes")) return format_bytes(value.number);
    const MetricFormat format = metric_format(key);
    const std::string number = format_number(value.number * format.factor);
    return format.unit.empty() ? number : fmt::format("{} {}", number, format.unit);
  }

  struct Line {
    std::string key;  // what its definition is found by
    std::string name, value;
  };
  using Lines = std::vector<Line>;

  static void add_text(Lines& lines, const std::string& key, const std::string& text) {
    if (!text.empty()) lines.push_back({key, key, clean_lines(text, 2048)});
  }
  static void add_figure(Lines& lines, const std::string& key, double value) {
    const bool bytes = key.starts_with("bytes_") || key.ends_with("_bytes");
    if (!std::isnan(value))
      add_text(lines, key, bytes ? format_bytes(value) : format_number(value));
  }

  static Lines rank_lines(const records::ShardingPart& sharding) {
    Lines lines;
    if (records::is_missing(sharding)) return lines;
    const std::string world = format_number(sharding.world);
    add_text(lines, "world",
             sharding.transport == "modelled"
                 ? world + " ranks, all of them modelled"
                 : fmt::format("rank {} of {}{}", format_number(sharding.rank), world,
                               sharding.fake ? " (the others are modelled)" : ""));
    add_text(lines, "transport", sharding.transport);
    add_text(lines, "units", fmt::format("{}", fmt::join(sharding.units, ", ")));
    for (const auto& [key, value] : records::numbers_of(sharding.held))
      add_figure(lines, key, value);
    for (const records::Traffic& kind : sharding.traffic)
      lines.push_back(
          {"traffic", kind.operation,
           fmt::format("{} a step, {}", format_number(kind.count), format_bytes(kind.bytes))});
    return lines;
  }

  // Two columns, name and value, of what the search takes.
  void draw_lines(const char* title, Lines lines, const UiStyle& style) const {
    std::erase_if(lines, [&](const Line& line) {
      return line.key.find(find_) == std::string::npos &&
             line.name.find(find_) == std::string::npos;
    });
    if (lines.empty()) return;
    ImGui::Spacing();
    show_bold(title, style);
    if (!ImGui::BeginTable(title, 2, ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerH)) return;
    // The same for all tables, so that values stand under each other.
    const float names =
        std::min(15 * ImGui::GetFontSize(), 0.5f * ImGui::GetContentRegionAvail().x);
    ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed, names);
    ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
    for (const Line& line : lines) {
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      const std::string name = clean_text(line.name, 128);
      show_text(shorten_middle(name, names), style.colors().muted_text);
      const std::string_view meaning = definition_of(line.key);
      explain_item(meaning.empty() ? name : meaning);
      ImGui::TableNextColumn();
      ImGui::PushTextWrapPos(0.0f);
      show_text(line.value.empty() ? "-" : line.value);
      ImGui::PopTextWrapPos();
    }
    ImGui::EndTable();
  }

  static void draw_run(const PanelContext& context, const LoadedRun& loaded) {
    const RunData& run = *loaded.data;
    const UiStyle& style = context.style;
    show_bold(clean_text(run.name, 256), style);
    show_wrapped(clean_text(run.path), style.colors().muted_text);
    if (!run.created.empty()) show_text("created " + clean_text(run.created, 64));
    std::map<std::string, size_t> counts;
    for (const PointHead& point : run.points) ++counts[clean_text(point.status, 64)];
    for (const auto& [status, count] : counts) {
      show_status(status, style);
      ImGui::SameLine();
      show_text(fmt::format("{}", count));
    }
    if (!loaded.error.empty()) {
      show_wrapped(clean_text(loaded.error), status_color("failed", style.theme));
    }
    for (const std::string& problem : run.problems) {
      show_wrapped(clean_text(problem), status_color("failed", style.theme));
    }
    if (!run.environment.empty()) {
      ImGui::Spacing();
      show_bold("Machine", style);
      for (const TextPair& line : run.environment) {
        show_text(clean_text(line.key, 64), style.colors().muted_text);
        ImGui::SameLine(12 * ImGui::GetFontSize());
        show_wrapped(clean_text(line.value, 512), style.colors().text);
      }
    }
    ImGui::Spacing();
    show_wrapped("Click a row of the run table to see one point.", style.colors().muted_text);
  }

  char find_[64] = "";
};

}  // namespace

const MakePanel make_details_panel = make_panel<DetailsPanel>;

}  // namespace moonshard::viewer
