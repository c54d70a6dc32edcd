// The plot panel: the plot specs of the selected run, one of them drawn by the same code as the PNG
// files.
#include <algorithm>
#include <string>

#include <imgui.h>

#include "viewer/panels/chart_panel.h"
#include "viewer/script.h"
#include "viewer/widgets/choice.h"
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
  PlotSpecPanel() : ChartPanel({"plot", "Plots", DockPlace::Charts}) {}
  std::string script(const Workspace& workspace) const override {
    return workspace.plot.empty() ? "" : figure_script(workspace, plot_name(workspace.plot));
  }

 protected:
  void draw_controls(const PanelContext& context) override {
    Workspace& workspace = context.workspace;
    const std::optional<size_t> index = workspace.selected_run();
    if (!index || workspace.run(*index).plots.empty()) return;
    const std::vector<std::string>& plots = workspace.run(*index).plots;
    if (std::ranges::find(plots, workspace.plot) == plots.end()) {
      workspace.plot = plots.front();
      remake();
    }
    ImGui::SetNextItemWidth(
        std::min(26 * ImGui::GetFontSize(), ImGui::GetContentRegionAvail().x * 0.7f));
    if (pick_name("##plot", workspace.plot, plots, plot_name)) remake();
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const Workspace& workspace = context.workspace;
    const std::optional<size_t> index = workspace.selected_run();
    if (!index || workspace.run(*index).plots.empty()) {
      chart.empty_what = "No plots in this run folder";
      chart.empty_next =
          "Make them with 'moonshard plot DIR', or runs:plot \"all\" in a script. They appear here "
          "by themselves.";
      return;
    }
    const Loaded<records::PlotSpec> loaded =
        context.store.file<records::PlotSpec>({ReadRequest::Kind::Plot,
                                               workspace.run(*index).path,
                                               {"visualizations/" + workspace.plot}});
    chart.waiting = loaded.loading && !loaded.value;
    if (!loaded.error.empty()) {
      chart.empty_what = "This plot cannot be drawn";
      chart.empty_next = clean_text(loaded.error);
    } else if (loaded.value) {
      chart.spec = *loaded.value;
    }
  }
};

}  // namespace

const MakePanel make_plot_spec_panel = make_panel<PlotSpecPanel>;

}  // namespace moonshard::viewer
