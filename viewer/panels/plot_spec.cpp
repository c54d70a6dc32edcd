// The plot panel: the plot specs of the open runs, those of the selected one first, one of them
// drawn by the same code as the PNG files.
#include <algorithm>
#include <string>

#include <fmt/format.h>
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
    const std::optional<size_t> index = run_of(workspace);
    if (!index) return;
    const std::vector<std::string>& plots = workspace.run(*index).plots;
    if (std::ranges::find(plots, workspace.plot) == plots.end()) {
      workspace.plot = plots.front();
      remake();
    }
    ImGui::SetNextItemWidth(
        std::min(26 * ImGui::GetFontSize(), ImGui::GetContentRegionAvail().x * 0.7f));
    if (workspace.snapshot().runs.size() < 2) {
      if (pick_name("##plot", workspace.plot, plots, plot_name)) remake();
      return;
    }
    const RunData& shown = workspace.run(*index);
    const std::string now = fmt::format("{}: {}", shown.name, plot_name(workspace.plot));
    if (!ImGui::BeginCombo("##plot", clean_text(now, 256).c_str())) return;
    for (const LoadedRun& loaded : workspace.snapshot().runs) {
      const RunData& run = *loaded.data;
      for (const std::string& plot : run.plots) {
        const std::string name = fmt::format("{}: {}", run.name, plot_name(plot));
        const bool is_shown = run.path == shown.path && plot == workspace.plot;
        if (!ImGui::Selectable(literal_label(name, run.path + plot).c_str(), is_shown)) continue;
        picked_ = run.path;
        workspace.plot = plot;
        remake();
      }
    }
    ImGui::EndCombo();
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const Workspace& workspace = context.workspace;
    const std::optional<size_t> index = run_of(workspace);
    if (!index) {
      const bool several = workspace.snapshot().runs.size() > 1;
      chart.empty_what = several ? "No plots in these run folders" : "No plots in this run folder";
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

 private:
  // The run that was picked here, until another is selected; the selected one; the first that has
  // plots.
  std::optional<size_t> run_of(const Workspace& workspace) {
    const std::optional<size_t> selected = workspace.selected_run();
    if (selected != selected_) picked_.clear();
    selected_ = selected;
    const std::vector<LoadedRun>& runs = workspace.snapshot().runs;
    std::optional<size_t> found;
    for (size_t r = runs.size(); r-- > 0;) {
      if (runs[r].data->plots.empty()) continue;
      if (!picked_.empty() && runs[r].data->path == picked_) return r;
      if (picked_.empty() && selected && r == *selected) return r;
      found = r;
    }
    return found;
  }

  std::string picked_;
  std::optional<size_t> selected_;
};

}  // namespace

const MakePanel make_plot_spec_panel = make_panel<PlotSpecPanel>;

}  // namespace moonshard::viewer
