#include "viewer/layout.h"

#include <imgui_internal.h>

namespace moonshard::viewer {

void apply_default_layout(ImGuiID dock, ImVec2 size,
                          const std::vector<std::unique_ptr<Panel>>& panels) {
  ImGui::DockBuilderRemoveNode(dock);
  ImGui::DockBuilderAddNode(dock, ImGuiDockNodeFlags_DockSpace);
  ImGui::DockBuilderSetNodeSize(dock, size);
  ImGuiID left = dock, left_top = 0, right_top = 0;
  const ImGuiID right = ImGui::DockBuilderSplitNode(dock, ImGuiDir_Right, 0.54f, nullptr, &left);
  const ImGuiID left_bottom =
      ImGui::DockBuilderSplitNode(left, ImGuiDir_Down, 0.44f, nullptr, &left_top);
  const ImGuiID right_bottom =
      ImGui::DockBuilderSplitNode(right, ImGuiDir_Down, 0.48f, nullptr, &right_top);
  for (const std::unique_ptr<Panel>& panel : panels) {
    panel->open = true;
    const ImGuiID node = panel->place() == DockPlace::Table    ? left_top
                         : panel->place() == DockPlace::Side   ? left_bottom
                         : panel->place() == DockPlace::Charts ? right_top
                                                               : right_bottom;
    ImGui::DockBuilderDockWindow(panel->title(), node);
  }
  for (const ImGuiID node : {left_top, left_bottom, right_top, right_bottom}) {
    // The tab has a cross of its own, and the triangle menu only hides the tab.
    ImGui::DockBuilderGetNode(node)->SetLocalFlags(ImGuiDockNodeFlags_NoWindowMenuButton |
                                                   ImGuiDockNodeFlags_NoCloseButton);
  }
  ImGui::DockBuilderFinish(dock);
}

}  // namespace moonshard::viewer
