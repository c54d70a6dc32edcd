#include "viewer/export_dialog.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
void ExportDialog::open(ExportRequest request) {
  request_ = std::move(request);
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::current_path(error);
  std::snprintf(file_, sizeof file_, "%s", (folder / (request_.name + ".png")).c_str());
  options_.width = request_.spec.width;
  options_.height = request_.spec.height;
  error_.clear();
  replaced_.clear();
  asked_ = true;
}

void ExportDialog::save(const char* extension) {
  std::filesystem::path file = file_;
  const std::string own = file.extension().string();
  // "step_1.5" is a name, not one with the extension ".5".
  if (own == ".png" || own == ".csv") file.replace_extension();
  file += extension;
  std::error_code error;
  if (std::filesystem::exists(file, error) && replaced_ != file) {
    replaced_ = file;
    error_ = fmt::format("{} exists already: press again to replace it, or change the name",
                         file.string());
    return;
  }
  replaced_.clear();
  options_.file = std::move(file);
  options_.theme = dark_ ? Theme::Dark : Theme::Light;
  error_.clear();
  job_ = start_export(request_.spec, options_, own_program());
}

std::string ExportDialog::draw(const UiStyle& style) {
  std::string notice;
  if (job_.valid() && job_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    const ExportResult result = job_.get();
    notice = result.text;
    if (!result.ok) error_ = result.text;
  }
  if (asked_) ImGui::OpenPopup("Export picture");
  asked_ = false;
  const float em = ImGui::GetFontSize();
  ImGui::SetNextWindowPos(ImGui::GetMainViewport()->GetCenter(), ImGuiCond_Appearing,
                          ImVec2(0.5f, 0.5f));
  if (!ImGui::BeginPopupModal("Export picture", nullptr, ImGuiWindowFlags_AlwaysAutoResize)) {
    return notice;
  }
  ImGui::SetNextItemWidth(32 * em);
  ImGui::InputText("file", file_, sizeof file_);
  ImGui::SetNextItemWidth(8 * em);
  ImGui::InputInt("width", &options_.width, 10, 100);
  ImGui::SameLine();
  ImGui::SetNextItemWidth(8 * em);
  ImGui::InputInt("height", &options_.height, 10, 100);
  options_.width = std::clamp(options_.width, 64, 16384);
  options_.height = std::clamp(options_.height, 64, 16384);
  for (int scale = 1; scale <= 4; ++scale) {
    ImGui::RadioButton(fmt::format("{}x", scale).c_str(), &options_.scale, scale);
    ImGui::SameLine();
  }
  show_text(fmt::format("{} x {} pixels", options_.width * options_.scale,
                        options_.height * options_.scale),
            style.colors().muted_text);
  if (ImGui::RadioButton("light, for paper", !dark_)) dark_ = false;
  ImGui::SameLine();
  if (ImGui::RadioButton("dark, for slides", dark_)) dark_ = true;
  if (!error_.empty()) {
    ImGui::PushTextWrapPos(36 * em);
    show_text(clean_text(error_), status_color("failed", style.theme));
    ImGui::PopTextWrapPos();
  }
  const bool busy = job_.valid();
  ImGui::BeginDisabled(busy || file_[0] == '\0');
  const bool picture = ImGui::Button("Save PNG");
  ImGui::SameLine();
  const bool data = ImGui::Button("Save data as CSV");
  ImGui::EndDisabled();
  ImGui::SameLine();
  if (ImGui::Button("Close") || ImGui::IsKeyPressed(ImGuiKey_Escape) ||
      (!notice.empty() && error_.empty())) {
    ImGui::CloseCurrentPopup();
  }
  if (busy) {
    ImGui::SameLine();
    ImGui::TextDisabled("drawing ...");
  }
  if (picture || data) save(data ? ".csv" : ".png");
  ImGui::EndPopup();
  return notice;
}

}  // namespace moonshard::viewer
