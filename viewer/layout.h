// The docking layout that comes with the program: table and what belongs to a point on the left,
// charts on the right above, what explains one of them below.
#pragma once

#include <memory>
#include <vector>

#include <imgui.h>

#include "viewer/panels/panel.h"

namespace moonshard::viewer {

/// Puts all panels in their places in a dock space of the given size, all open.
void apply_default_layout(ImGuiID dock, ImVec2 size,
                          const std::vector<std::unique_ptr<Panel>>& panels);

}  // namespace moonshard::viewer
