#include "viewer/script.h"

#include <filesystem>

#include <fmt/format.h>

namespace moonshard::viewer {

std::string script_for(const Workspace& workspace, std::string_view body) {
  std::string text =
      "-- Made by moonshard view. Run: moonshard run THIS_FILE.lua\n"
      "local ms = require \"moonshard\"\n";
  if (!workspace.filter().nodes.empty()) {
    text += fmt::format("local function wanted(point)\n{}\nend\n", to_lua(workspace.filter()));
  }
  std::string hidden;
  for (size_t r = 0; r < workspace.snapshot().runs.size(); ++r) {
    for (size_t p = 0; p < workspace.run(r).points.size(); ++p) {
      if (workspace.num_hidden() == 0 || !workspace.hidden({r, p})) continue;
      hidden += fmt::format("[{}] = true, ", lua_text(workspace.run(r).points[p].id));
    }
  }
  if (!hidden.empty()) text += fmt::format("local hidden = {{ {}}}\n", hidden);
  text += "for _, path in ipairs {\n";
  for (const LoadedRun& run : workspace.snapshot().runs) {
    std::error_code error;
    const auto whole = std::filesystem::absolute(run.data->path, error);
    text += fmt::format("  {},\n", lua_text(error ? run.data->path : whole.string()));
  }
  text += "} do\n  local runs = ms.load(path)\n";
  if (!workspace.filter().nodes.empty()) {
    text +=
        "  for _, point in ipairs(runs.points) do point.run = runs.name end\n"
        "  runs.points = runs:select(wanted)\n";
  }
  if (!hidden.empty()) {
    text += "  runs.points = runs:select(function(point) return not hidden[point.id] end)\n";
  }
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = std::min(body.find('\n', at), body.size());
    text += fmt::format("  {}\n", body.substr(at, end - at));
    at = end + 1;
  }
  return text + "end\n";
}

std::string figure_script(const Workspace& workspace, std::string_view figure) {
  return script_for(workspace,
                    fmt::format("for _, picture in ipairs(runs:plot {}) do print(picture) end",
                                lua_text(figure)));
}

}  // namespace moonshard::viewer
