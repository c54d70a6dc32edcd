// The plot panel: the plot specs of the selected run, one of them drawn by the same code as the PNG
// files.
#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/chart_panel.h"
#include "viewer/panels/make_panels.h"
#include "viewer/script.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr std::string_view kEnding = ".plot.json";

std::string plot_name(const std::string& file_name) {
  std::string name = file_name;
  if (name.ends_with(kEnding)) name.resize(name.size() - kEnding.size());
  return name;
}

class PlotSpecPanel final : public ChartPanel {
 public:
  std::string_view name() const override { return "plot"; }
  const char* title() const override { return "Plots"; }
  const char* purpose() const override {
    return "The pictures that scripts made of the run, as in its PNG files.";
  }
  std::string script(const Workspace& workspace) const override {
    return workspace.plot.empty() ? "" : figure_script(workspace, plot_name(workspace.plot));
  }

 protected:
  void draw_controls(const PanelContext& context) override {
    Workspace& workspace = context.workspace;
    const std::optional<size_t> index = workspace.selected_run();
    if (!index || workspace.run(*index).plots.empty()) return;
    const std::vector<std::string>& plots = workspace.run(*index).plots;
    if (std::find(plots.begin(), plots.end(), workspace.plot) == plots.end()) {
      workspace.plot = plots.front();
      remake();
    }
    ImGui::SetNextItemWidth(
        std::min(26 * ImGui::GetFontSize(), ImGui::GetContentRegionAvail().x * 0.7f));
    const std::string preview = clean_text(plot_name(workspace.plot), 256);
    if (!ImGui::BeginCombo("##plot", preview.c_str())) return;
    for (const std::string& plot : plots) {
      const bool picked = plot == workspace.plot;
      if (ImGui::Selectable(literal_label(plot_name(plot), plot).c_str(), picked)) {
        workspace.plot = plot;
        remake();
      }
      if (picked) ImGui::SetItemDefaultFocus();
    }
    ImGui::EndCombo();
  }

  Chart make_chart(const PanelContext& context) override {
    Chart chart;
    const Workspace& workspace = context.workspace;
    const std::optional<size_t> index = workspace.selected_run();
    if (!index || workspace.run(*index).plots.empty()) {
      chart.empty_what = "No plots in this run folder";
      chart.empty_next =
          "Make them with 'moonshard plot DIR', or runs:plot \"all\" in a script. They appear here "
          "by themselves.";
      return chart;
    }
    const Loaded<records::PlotSpec> loaded = context.store.file<records::PlotSpec>(
        ReadRequest::Kind::Plot, workspace.run(*index).path, {"visualizations/" + workspace.plot});
    chart.waiting = loaded.loading && !loaded.value;
    if (!loaded.error.empty()) {
      chart.empty_what = "This plot cannot be drawn";
      chart.empty_next = clean_text(loaded.error);
    } else if (loaded.value) {
      chart.spec = *loaded.value;
    }
    return chart;
  }
};

}  // namespace

std::unique_ptr<Panel> make_plot_spec_panel() {
  return std::make_unique<PlotSpecPanel>();
}

}  // namespace moonshard::viewer
