// Lua scripts that make from the open folders what is on the screen ("copy as script").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "viewer/workspace.h"

namespace moonshard::viewer {

/// A whole script: loads the open folders, keeps the points that are shown, then runs body for each
/// of them, with `ms` and `runs` (an ms.load result) at hand.
/// `before` runs before points are left out, for what the others are compared with.
std::string script_for(const Workspace& workspace, std::string_view body,
                       std::string_view before = "");

/// Prints figures of the shown points as a table: metrics by their names, "overhead:time_ratio" and
/// the like against the baseline that is chosen now.
std::string figures_script(const Workspace& workspace, const std::vector<std::string>& keys);

/// A script that draws one of the figures of scripts/moonshard/plot, below the folder it is run in:
/// the run folder's own pictures show all of its points, and stay.
std::string figure_script(const Workspace& workspace, std::string_view figure);

}  // namespace moonshard::viewer
