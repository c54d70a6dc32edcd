#include "viewer/widgets/loading.h"

#include <algorithm>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {

void show_no_point(bool any_folder, const UiStyle& style) {
  if (any_folder) {
    show_empty_state("No point selected", "Click a row of the run table, or a mark in a chart.",
                     style);
  } else {
    show_empty_state("No folder is open", "Press Ctrl+O, or drop a run folder here.", style);
  }
}

bool show_loading_state(bool has_value, bool loading, double progress, const std::string& error,
                        Store& store, const ReadRequest& request, const UiStyle& style) {
  if (has_value) {
    if (!error.empty()) {
      show_wrapped(clean_text("out of date: " + error), status_color("failed", style.theme));
    }
    return true;
  }
  const float em = ImGui::GetFontSize();
  if (loading) {
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const float width = std::min(24 * em, room.x * 0.8f);
    ImGui::SetCursorPos(ImGui::GetCursorPos() +
                        ImVec2((room.x - width) / 2, std::max(0.0f, room.y * 0.4f)));
    ImGui::BeginGroup();
    const float share = static_cast<float>(std::clamp(progress, 0.0, 1.0));
    ImGui::ProgressBar(share, ImVec2(width, 0),
                       fmt::format("reading {:.0f} %", share * 100).c_str());
    if (ImGui::Button("Cancel")) store.cancel(request.kind, request.folder, request.names);
    ImGui::EndGroup();
    return false;
  }
  show_wrapped(clean_text(error.empty() ? "was not read" : error),
               status_color(error == "cancelled" ? "skipped" : "failed", style.theme));
  if (ImGui::Button(error == "cancelled" ? "Read it" : "Try again")) {
    store.retry(request.kind, request.folder, request.names);
  }
  return false;
}

}  // namespace moonshard::viewer
