// The plot panel: the plot specs of the selected run, one of them drawn by the same code as the PNG
// files.
#include <optional>
#include <string>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/panel.h"
#include "viewer/render/plot_renderer.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr const char* kEnding = ".plot.json";

std::string plot_name(const std::string& file_name) {
  std::string name = file_name;
  if (name.ends_with(kEnding)) name.resize(name.size() - std::string_view(kEnding).size());
  return name;
}

class PlotSpecPanel final : public Panel {
 public:
  std::string_view name() const override { return "plot"; }
  const char* title() const override { return "Plots"; }

  void draw(const PanelContext& context) override {
    const LoadedRun* loaded = selected_run(context.snapshot, context.selection);
    if (!loaded || loaded->run.plots.empty()) {
      draw_empty(context);
      return;
    }
    choose_default(loaded->run, context.selection);
    draw_chooser(loaded->run, context.selection);
    load(context.snapshot, loaded->run, context.selection);
    if (!error_.empty()) {
      show_wrapped(error_, status_color("failed", context.style.theme));
    } else if (plot_) {
      ImGui::PushID(shown_.c_str());
      draw_scrolled(context.style);
      ImGui::PopID();
    }
  }

 private:
  // A figure of several rows keeps a readable height and scrolls; one row fills the panel.
  void draw_scrolled(const UiStyle& style) {
    constexpr float kRowHeightEm = 17;
    const size_t rows = (plot_->panels.size() + plot_->columns - 1) / plot_->columns;
    ImVec2 size = ImGui::GetContentRegionAvail();
    const float wanted = static_cast<float>(rows) * kRowHeightEm * ImGui::GetFontSize();
    const bool scrolls = rows > 1 && wanted > size.y;
    ImGui::BeginChild("##figure", size);
    if (scrolls) size = ImVec2(size.x - ImGui::GetStyle().ScrollbarSize, wanted);
    draw_plot(*plot_, state_, size, style, true);
    ImGui::EndChild();
  }

  static void draw_empty(const PanelContext& context) {
    if (context.loading) {
      show_empty_state("Reading the run folders ...", "", context.style);
      return;
    }
    show_empty_state("No plots in this run folder",
                     "Make them with 'moonshard plot DIR', or runs:plot \"all\" in a script. They "
                     "appear here by themselves.",
                     context.style);
  }

  static void choose_default(const records::RunFolder& run, Selection& selection) {
    for (const std::string& plot : run.plots) {
      if (plot == selection.plot) return;
    }
    selection.plot = run.plots.front();
  }

  static void draw_chooser(const records::RunFolder& run, Selection& selection) {
    ImGui::SetNextItemWidth(std::min(26 * ImGui::GetFontSize(), ImGui::GetContentRegionAvail().x));
    const std::string preview = clean_text(plot_name(selection.plot), 256);
    if (!ImGui::BeginCombo("##plot", preview.c_str())) return;
    for (const std::string& plot : run.plots) {
      const bool picked = plot == selection.plot;
      if (ImGui::Selectable(literal_label(plot_name(plot), plot).c_str(), picked)) {
        selection.plot = plot;
      }
      if (picked) ImGui::SetItemDefaultFocus();
    }
    ImGui::EndCombo();
  }

  // Reads the chosen spec when another is chosen or the folder was read again.
  void load(const Snapshot& snapshot, const records::RunFolder& run, const Selection& selection) {
    const std::string key = fmt::format("{}/{}", selection.run, selection.plot);
    if (key == shown_ && snapshot.generation == generation_) return;
    if (key != shown_) state_ = PlotState();
    state_.fit = true;
    shown_ = key;
    generation_ = snapshot.generation;
    error_.clear();
    plot_.reset();
    try {
      plot_ = prepare_plot(load_run_plot(run, selection.plot));
    } catch (const std::exception& problem) {
      error_ = clean_text(problem.what());
    }
  }

  std::optional<PreparedPlot> plot_;
  PlotState state_;
  std::string shown_;  // run and file name of plot_
  std::string error_;
  uint64_t generation_ = 0;
};

}  // namespace

std::unique_ptr<Panel> make_plot_spec_panel() {
  return std::make_unique<PlotSpecPanel>();
}

}  // namespace moonshard::viewer
