// The sweeps panel: how far each open sweep is, what runs now, when it will be done.
#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/panel.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto whole = static_cast<long>(seconds + 0.5);
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// Folders that are passed on come without progress.json, and so do sweeps of other tools.
std::string state_without_progress(const RunData& run) {
  const bool open = std::ranges::any_of(run.points, [](const PointHead& point) {
    return point.status == "planned" || point.status == "running";
  });
  if (!open) return run.created.empty() ? "done" : "done; begun " + clean_text(run.created, 32);
  return "no progress.json in the folder: how long it has run, and whether it still does, is not "
         "known";
}

class ProgressPanel final : public Panel {
 public:
  ProgressPanel() : Panel({"progress", "Sweeps", DockPlace::Side}) {}

  void draw(const PanelContext& context) override {
    if (context.snapshot.runs.empty()) {
      show_empty_state("No folder is open", "Press Ctrl+O, or drop a run folder here.",
                       context.style);
      return;
    }
    for (size_t r = 0; r < context.snapshot.runs.size(); ++r) {
      ImGui::PushID(static_cast<int>(r));
      draw_run(context, context.snapshot.runs[r], context.workspace.selected_run() == r);
      ImGui::PopID();
    }
  }

 private:
  static void draw_run(const PanelContext& context, const LoadedRun& loaded, bool selected) {
    const RunData& run = *loaded.data;
    const ImU32 muted = context.style.colors().muted_text;
    if (ImGui::Selectable(literal_label(run.name, run.path).c_str(), selected)) {
      context.workspace.select_run(run.path);
    }
    explain_item(clean_text(run.path));
    draw_bar(run, context.style);
    const SweepProgress& progress = run.progress;
    if (progress.state.empty()) {
      show_text(loaded.error.empty() ? state_without_progress(run) : clean_text(loaded.error),
                muted);
    } else if (progress.state == "running") {
      show_text(fmt::format("running for {}, about {} left", duration_text(progress.elapsed_s),
                            duration_text(progress.eta_s)));
      if (!progress.current.empty())
        show_wrapped("now: " + clean_text(progress.current, 512), muted);
      show_text("last word at " + clean_text(progress.updated, 64), muted);
    } else {
      show_text(fmt::format("{} after {}", clean_text(progress.state, 64),
                            duration_text(progress.elapsed_s)),
                muted);
    }
    ImGui::Spacing();
  }

  // A part for each status in its colour, and the same in words below.
  static void draw_bar(const RunData& run, const UiStyle& style) {
    constexpr std::array kStatuses = {"ok", "oom", "failed", "timeout", "skipped", "running"};
    std::array<size_t, kStatuses.size() + 1> counts{};  // the last: any other word
    size_t open = 0;
    for (const PointHead& point : run.points) {
      const auto found = std::ranges::find(kStatuses, point.status);
      open += point.status == "planned" || point.status == "running";
      if (point.status != "planned") ++counts[static_cast<size_t>(found - kStatuses.begin())];
    }
    const size_t total = run.points.size();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const ImVec2 size(ImGui::GetContentRegionAvail().x, 0.5f * ImGui::GetFontSize());
    ImDrawList* draw = ImGui::GetWindowDrawList();
    draw->AddRectFilled(at, at + size, ImGui::GetColorU32(ImGuiCol_FrameBg));
    std::string words = fmt::format("{} of {} points", total - open, total);
    float x = at.x;
    for (size_t s = 0; s < counts.size(); ++s) {
      if (counts[s] == 0) continue;
      const char* status = s < kStatuses.size() ? kStatuses[s] : "other";
      const float end = x + size.x * static_cast<float>(counts[s]) / static_cast<float>(total);
      draw->AddRectFilled(ImVec2(x, at.y), ImVec2(end, at.y + size.y),
                          status_color(status, style.theme));
      x = end;
      words += fmt::format("{} {} {}", words.ends_with("points") ? ":" : ",", counts[s], status);
    }
    ImGui::Dummy(size);
    show_wrapped(words, style.colors().text);
  }
};

}  // namespace

const MakePanel make_progress_panel = make_panel<ProgressPanel>;

}  // namespace moonshard::viewer
