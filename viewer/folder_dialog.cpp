#include "viewer/folder_dialog.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <imgui.h>

#include "runtime/base/check.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxEntries = 5000;

bool is_run_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path / "sweep.json", error);
}

}  // namespace

std::vector<fs::path> find_run_folders(const fs::path& path) {
  if (is_run_folder(path)) return {path};
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (found.size() < kMaxEntries && is_run_folder(entry->path())) found.push_back(entry->path());
  }
  if (found.empty()) {
    throw IoError(fmt::format(
        "{}: expected a run folder with sweep.json, or a folder of such folders, got {}; give a "
        "folder like results/run_YYYYMMDD_HHMMSS",
        path.string(),
        fs::is_directory(path, error) ? "a folder without one"
        : fs::exists(path, error)     ? "a file"
                                      : "nothing at that path"));
  }
  std::ranges::sort(found);
  return found;
}

OpenablePaths find_openable(const std::vector<fs::path>& paths) {
  OpenablePaths found;
  std::string problem;
  for (const fs::path& path : paths) {
    std::error_code error;
    const std::string ending = path.extension().string();
    if ((ending == ".pickle" || ending == ".pkl") && fs::is_regular_file(path, error)) {
      found.snapshots.push_back(path);
      continue;
    }
    try {
      for (fs::path& run : find_run_folders(path)) found.runs.push_back(std::move(run));
    } catch (const IoError& reason) {
      if (!fs::exists(path, error)) throw;  // a mistyped path is not passed over
      if (problem.empty()) problem = reason.what();
    }
  }
  if (found.runs.empty() && found.snapshots.empty() && !problem.empty()) throw IoError(problem);
  return found;
}

void FolderDialog::list() {
  if (listed_ == path_) return;
  listed_ = path_;
  entries_.clear();
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entries_.size() >= kMaxEntries || !entry->is_directory(ignored)) continue;
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.')) entries_.push_back({name, is_run_folder(entry->path())});
  }
  std::ranges::sort(entries_, [](const Entry& a, const Entry& b) {
    return a.run_folder != b.run_folder ? a.run_folder : a.name < b.name;
  });
}

std::vector<fs::path> FolderDialog::draw(const UiStyle& style,
                                         const std::vector<std::string>& recent) {
  std::vector<fs::path> chosen;
  if (asked_) {
    asked_ = false;
    error_.clear();
    listed_.clear();
    if (path_[0] == '\0') {
      std::error_code error;
      std::snprintf(path_, sizeof path_, "%s", fs::current_path(error).c_str());
    }
    ImGui::OpenPopup("Open a run folder");
  }
  const float em = ImGui::GetFontSize();
  const ImVec2 screen = ImGui::GetMainViewport()->WorkSize;
  ImGui::SetNextWindowPos(ImGui::GetMainViewport()->GetCenter(), ImGuiCond_Appearing,
                          ImVec2(0.5f, 0.5f));
  ImGui::SetNextWindowSize(
      ImVec2(std::min(44 * em, screen.x * 0.9f), std::min(32 * em, screen.y * 0.9f)),
      ImGuiCond_Appearing);
  if (!ImGui::BeginPopupModal("Open a run folder")) return chosen;
  list();
  const auto open = [&](const fs::path& path) {
    try {
      OpenablePaths found = find_openable({path});
      chosen = std::move(found.runs);
      chosen.insert(chosen.end(), found.snapshots.begin(), found.snapshots.end());
      ImGui::CloseCurrentPopup();
    } catch (const std::exception& problem) {
      error_ = problem.what();
    }
  };
  if (ImGui::IsWindowAppearing()) ImGui::SetKeyboardFocusHere();
  ImGui::SetNextItemWidth(-8 * em);
  if (ImGui::InputText("##path", path_, sizeof path_, ImGuiInputTextFlags_EnterReturnsTrue)) {
    open(path_);
  }
  ImGui::SameLine();
  if (ImGui::Button("Open", ImVec2(-1, 0))) open(path_);
  if (!error_.empty()) show_wrapped(clean_text(error_), status_color("failed", style.theme));
  if (ImGui::BeginChild("##folders", ImVec2(0, -2.2f * em), ImGuiChildFlags_Borders)) {
    if (!recent.empty()) ImGui::SeparatorText("Recent");
    for (size_t i = 0; i < recent.size(); ++i) {
      if (ImGui::Selectable(literal_label(recent[i], fmt::format("recent{}", i)).c_str())) {
        open(recent[i]);
      }
    }
    ImGui::SeparatorText("Here");
    const fs::path here = path_;
    if (here.has_parent_path() && ImGui::Selectable("..")) {
      std::snprintf(path_, sizeof path_, "%s", here.parent_path().c_str());
    }
    for (const Entry& entry : entries_) {
      const std::string text = entry.run_folder ? entry.name + "   (run folder)" : entry.name + "/";
      if (!ImGui::Selectable(literal_label(text, entry.name).c_str())) continue;
      if (entry.run_folder) {
        open(here / entry.name);
      } else {
        std::snprintf(path_, sizeof path_, "%s", (here / entry.name).c_str());
      }
    }
  }
  ImGui::EndChild();
  show_text("A folder of run folders opens all of them.", style.colors().muted_text);
  ImGui::SameLine();
  ImGui::SetCursorPosX(ImGui::GetCursorPosX() +
                       std::max(0.0f, ImGui::GetContentRegionAvail().x - 6 * em));
  if (ImGui::Button("Close", ImVec2(-1, 0)) || ImGui::IsKeyPressed(ImGuiKey_Escape)) {
    ImGui::CloseCurrentPopup();
  }
  ImGui::EndPopup();
  return chosen;
}

}  // namespace moonshard::viewer
