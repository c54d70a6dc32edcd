#include "viewer/context.h"

#include <imgui.h>
#include <implot.h>

namespace moonshard::viewer {
namespace {

ImFont* load_font(const char* file_name, ImFont* fallback) {
  const std::filesystem::path path = share_folder() / "fonts" / file_name;
  std::error_code error;
  // ImGui asserts on a missing file, so look first: a missing font is not an error here.
  if (!std::filesystem::is_regular_file(path, error)) return fallback;
  return ImGui::GetIO().Fonts->AddFontFromFileTTF(path.c_str(), UiContext::kFontSize);
}

}  // namespace

UiContext::UiContext(Theme theme) {
  IMGUI_CHECKVERSION();
  ImGui::CreateContext();
  ImPlot::CreateContext();
  ImGuiIO& io = ImGui::GetIO();
  io.ConfigFlags |= ImGuiConfigFlags_DockingEnable | ImGuiConfigFlags_NavEnableKeyboard;
  io.IniFilename = nullptr;  // opening a folder leaves no file behind
  io.LogFilename = nullptr;
  ImGui::GetStyle().FontSizeBase = kFontSize;
  io.FontDefault = load_font("DejaVuSans.ttf", nullptr);
  if (!io.FontDefault) io.FontDefault = io.Fonts->AddFontDefaultVector();
  style_.bold = load_font("DejaVuSans-Bold.ttf", io.FontDefault);
  style_.mono = load_font("DejaVuSansMono.ttf", io.FontDefault);
  set_theme(theme, 1.0f);
}

UiContext::~UiContext() {
  ImPlot::DestroyContext();
  ImGui::DestroyContext();
}

void UiContext::set_theme(Theme theme, float density) {
  style_.theme = theme;
  apply_theme(theme, density);
}

std::filesystem::path share_folder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  return program.parent_path().parent_path() / "share" / "moonshard";
}

}  // namespace moonshard::viewer
