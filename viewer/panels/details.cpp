// The details panel: all that is known of the selected point (error, metrics, options, end of the
// log), or of the run folder itself when no point is selected.
#include <map>
#include <string>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/panel.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

using records::Json;

constexpr int kMaxRows = 500;  // of one table; a record beyond that is not for the eye

// Two columns, name and value; metrics in their display units.
void draw_object(const char* id, const Json& object, bool metrics, const UiStyle& style) {
  if (!ImGui::BeginTable(id, 2, ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerH)) return;
  ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed, 15 * ImGui::GetFontSize());
  ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
  int rows = 0;
  for (const auto& [key, value] : object.items()) {
    if (++rows > kMaxRows) break;
    const MetricFormat format = metrics ? metric_format(key) : MetricFormat{key, "", 1.0};
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    show_text(clean_text(format.title, 128), plot_colors(style.theme).muted_text);
    ImGui::TableNextColumn();
    std::string text = metrics ? format_cell(value, format.factor) : format_option(value);
    if (value.is_number() && !format.unit.empty()) text += " " + format.unit;
    ImGui::PushTextWrapPos(0.0f);
    show_text(text.empty() ? "-" : text);
    ImGui::PopTextWrapPos();
  }
  ImGui::EndTable();
}

void draw_section(const char* title, const Json& object, bool metrics, const UiStyle& style) {
  if (!object.is_object() || object.empty()) return;
  ImGui::Spacing();
  show_bold(title, style);
  draw_object(title, object, metrics, style);
}

class DetailsPanel final : public Panel {
 public:
  std::string_view name() const override { return "details"; }
  const char* title() const override { return "Details"; }

  void draw(const PanelContext& context) override {
    const LoadedRun* loaded = selected_run(context.snapshot, context.selection);
    if (!loaded) {
      show_empty_state("Nothing selected", "Pick a point in the run table.", context.style);
      return;
    }
    const records::PointRecord* point = selected_point(context.snapshot, context.selection);
    if (point) {
      draw_point(context, loaded->run, *point);
    } else {
      draw_run(context, *loaded);
    }
  }

 private:
  void draw_point(const PanelContext& context, const records::RunFolder& run,
                  const records::PointRecord& point) {
    const UiStyle& style = context.style;
    show_bold(point_title(run, point), style);
    show_status(clean_text(point.status, 64), style);
    ImGui::SameLine();
    show_text(point.id, plot_colors(style.theme).muted_text);
    if (!point.error.empty()) {
      show_wrapped(clean_lines(point.error, 8192), status_color(point.status, style.theme));
    }
    draw_section("Metrics", point.metrics, true, style);
    draw_section("Options", point.options, false, style);
    draw_log(context, run, point);
  }

  void draw_log(const PanelContext& context, const records::RunFolder& run,
                const records::PointRecord& point) {
    // Reading the file in every frame would be felt; once per point and reading is enough.
    const std::string key = run.path.string() + "/" + point.id;
    if (key != log_of_ || context.snapshot.generation != generation_) {
      log_of_ = key;
      generation_ = context.snapshot.generation;
      log_ = clean_lines(records::read_log_tail(run.path, point.id));
    }
    if (log_.empty()) return;
    ImGui::Spacing();
    show_bold("End of the log (rank 0)", context.style);
    const float height =
        std::max(12 * ImGui::GetTextLineHeight(), ImGui::GetContentRegionAvail().y);
    if (ImGui::BeginChild("##log", ImVec2(0, height), ImGuiChildFlags_FrameStyle,
                          ImGuiWindowFlags_HorizontalScrollbar)) {
      show_text(log_);
    }
    ImGui::EndChild();
  }

  static std::string point_title(const records::RunFolder& run, const records::PointRecord& point) {
    std::string title;
    for (const std::string& axis : run.axes) {
      const auto value = point.options.find(axis);
      if (value == point.options.end()) continue;
      title += fmt::format("{}{} = {}", title.empty() ? "" : ", ", axis, format_option(*value));
    }
    return clean_text(title.empty() ? point.id : title, 512);
  }

  static void draw_run(const PanelContext& context, const LoadedRun& loaded) {
    const records::RunFolder& run = loaded.run;
    const UiStyle& style = context.style;
    show_bold(clean_text(run.name, 256), style);
    show_wrapped(clean_text(run.path.string()), plot_colors(style.theme).muted_text);
    if (!run.created.empty()) show_text("created " + clean_text(run.created, 64));
    std::map<std::string, size_t> counts;
    for (const records::PointRecord& point : run.points) ++counts[clean_text(point.status, 64)];
    for (const auto& [status, count] : counts) {
      show_status(fmt::format("{}", status), style);
      ImGui::SameLine();
      show_text(fmt::format("{}", count));
    }
    for (const std::string& problem : run.problems) {
      show_wrapped(clean_text(problem), status_color("failed", style.theme));
    }
    draw_section("Machine", run.environment, false, style);
    ImGui::Spacing();
    show_wrapped("Click a row of the run table to see one point.",
                 plot_colors(style.theme).muted_text);
  }

  std::string log_, log_of_;
  uint64_t generation_ = 0;
};

}  // namespace

std::unique_ptr<Panel> make_details_panel() {
  return std::make_unique<DetailsPanel>();
}

}  // namespace moonshard::viewer
