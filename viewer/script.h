// Lua scripts that make from the open folders what is on the screen ("copy as script").
#pragma once

#include <string>
#include <string_view>

#include "viewer/data/lua_text.h"
#include "viewer/workspace.h"

namespace moonshard::viewer {

/// A whole script: loads the open folders, keeps the points that are shown, then runs body for each
/// of them, with `ms` and `runs` (an ms.load result) at hand.
std::string script_for(const Workspace& workspace, std::string_view body);

/// A script that draws one of the figures of scripts/plot.
std::string figure_script(const Workspace& workspace, std::string_view figure);

}  // namespace moonshard::viewer
