#include "viewer/render/render_file.h"

#include <algorithm>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <imgui.h>
#include <stb/stb_image_write.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
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

float page_text_scale(int width) {
  constexpr float kPlainWidth = 900, kLargest = 1.4f;
  return std::clamp(static_cast<float>(width) / kPlainWidth, 1.0f, kLargest);
}

Image PlotExporter::draw(const records::PlotSpec& spec, float scale) {
  const PreparedPlot plot = prepare_plot(spec);
  context_.set_theme(context_.style().theme, page_text_scale(spec.width));
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

std::string encode_png(const Image& image) {
  MS_ASSERT(image.rgba.size() == static_cast<size_t>(image.width) * image.height * 4,
            "{} bytes for {} x {} pixels", image.rgba.size(), image.width, image.height);
  // Figures are opaque: three channels make the file smaller and the encoder faster.
  std::string rgb(image.rgba.size() / 4 * 3, '\0');
  for (size_t pixel = 0; pixel < image.rgba.size() / 4; ++pixel) {
    for (size_t channel = 0; channel < 3; ++channel) {
      rgb[pixel * 3 + channel] = static_cast<char>(image.rgba[pixel * 4 + channel]);
    }
  }
  std::string png;
  const auto append = [](void* target, void* bytes, int size) {
    static_cast<std::string*>(target)->append(static_cast<const char*>(bytes),
                                              static_cast<size_t>(size));
  };
  stbi_write_force_png_filter =
      0;  // flat areas compress best unfiltered, and five trials are saved
  stbi_write_png_to_func(append, &png, image.width, image.height, 3, rgb.data(), image.width * 3);
  MS_ASSERT(!png.empty(), "PNG of {} x {} pixels", image.width, image.height);
  return png;
}

void write_png(const std::filesystem::path& path, const Image& image) {
  write_file_atomically(path, encode_png(image));
}

}  // namespace moonshard::viewer
