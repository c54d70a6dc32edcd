#include "viewer/render/render_file.h"

#include <imgui.h>

#include "viewer/render/plot_renderer.h"

namespace moonshard::viewer {
namespace {

// Five million points of text stay below this; a larger file is no plot.
constexpr size_t kMaxSpecBytes = 256u << 20;

}  // namespace

records::PlotSpec load_plot_spec(const std::filesystem::path& path) {
  std::error_code error;
  // A pipe or a device would block the reader for ever.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    throw IoError(fmt::format("{}: expected a plot spec file, got {}; give a *.plot.json",
                              path.string(),
                              std::filesystem::is_directory(path, error) ? "a folder" : "no file"));
  }
  JsonLimits limits;
  limits.max_bytes = kMaxSpecBytes;
  return records::plot_spec_from_json(read_json_file(path, limits), path.string());
}

std::string png_name_for(const std::filesystem::path& spec_path) {
  std::string name = spec_path.filename().string();
  for (const char* ending : {".plot.json", ".json"}) {
    if (name.ends_with(ending)) {
      name.resize(name.size() - std::string_view(ending).size());
      break;
    }
  }
  return name + ".png";
}

PlotExporter::PlotExporter(Theme theme) : context_(theme), backend_(make_headless_backend()) {}

Image PlotExporter::draw(const records::PlotSpec& spec, float scale) {
  const PreparedPlot plot = prepare_plot(spec);
  backend_->resize(spec.width, spec.height, scale);
  PlotState state;
  // The first frame measures the axes and is not drawn, the second has their final places.
  for (int frame = 0; frame < 2; ++frame) {
    backend_->begin_frame(0);
    ImGui::SetNextWindowPos(ImVec2(0, 0));
    ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(0, 0));
    ImGui::Begin("##figure", nullptr,
                 ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoInputs |
                     ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoSavedSettings);
    draw_plot(plot, state, ImGui::GetIO().DisplaySize, context_.style(), false);
    ImGui::End();
    ImGui::PopStyleVar();
    frame == 0 ? ImGui::EndFrame() : backend_->end_frame();
  }
  return backend_->read_pixels();
}

}  // namespace moonshard::viewer
