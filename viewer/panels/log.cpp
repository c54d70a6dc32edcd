// The log panel: what the ranks of the selected point wrote, with a search.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/make_panels.h"
#include "viewer/panels/selected_detail.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/loading.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

std::string lowered(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

class LogPanel final : public Panel {
 public:
  std::string_view name() const override { return "log"; }
  const char* title() const override { return "Log"; }
  DockPlace place() const override { return DockPlace::Side; }
  const char* purpose() const override {
    return "What each rank of the selected point wrote, with a search.";
  }
  std::vector<std::pair<std::string, std::string>> shortcuts() const override {
    return {{"F3, Shift+F3", "next and previous line found in the log"}};
  }

  void draw(const PanelContext& context) override {
    const std::optional<SelectedDetail> selected = selected_detail(context);
    if (!selected) return;
    const auto& [folder, id, detail] = *selected;
    if (!detail.value || detail.value->logs.empty()) {
      show_empty_state(detail.loading ? "Reading ..." : "This point has no log",
                       detail.loading ? "" : "Logs appear when the point starts.", context.style);
      return;
    }
    const std::vector<std::string>& logs = detail.value->logs;
    if (std::find(logs.begin(), logs.end(), log_) == logs.end()) log_ = logs.front();
    draw_controls(logs);
    const std::vector<std::string> names = {"points/" + id + "/" + log_};
    const Loaded<std::string> text =
        context.store.file<std::string>(ReadRequest::Kind::Log, folder, names);
    if (!show_loading(text, context.store, ReadRequest::Kind::Log, folder, names, context.style)) {
      return;
    }
    take_text(text.value);
    draw_lines(context.style);
  }

 private:
  void draw_controls(const std::vector<std::string>& logs) {
    ImGui::SetNextItemWidth(10 * ImGui::GetFontSize());
    if (ImGui::BeginCombo("##log", clean_text(log_, 64).c_str())) {
      for (const std::string& log : logs) {
        if (ImGui::Selectable(literal_label(log, log).c_str(), log == log_)) log_ = log;
      }
      ImGui::EndCombo();
    }
    ImGui::SameLine();
    ImGui::SetNextItemWidth(std::max(8 * ImGui::GetFontSize(),
                                     ImGui::GetContentRegionAvail().x - 14 * ImGui::GetFontSize()));
    if (ImGui::InputTextWithHint("##find", "find in the log", find_, sizeof find_,
                                 ImGuiInputTextFlags_EscapeClearsAll)) {
      search();
    }
    const bool focused = ImGui::IsWindowFocused(ImGuiFocusedFlags_RootAndChildWindows);
    ImGui::SameLine();
    if (ImGui::ArrowButton("##previous", ImGuiDir_Up) ||
        (focused && ImGui::Shortcut(ImGuiMod_Shift | ImGuiKey_F3))) {
      step(-1);
    }
    ImGui::SameLine(0, 2);
    if (ImGui::ArrowButton("##next", ImGuiDir_Down) || (focused && ImGui::Shortcut(ImGuiKey_F3))) {
      step(1);
    }
    ImGui::SameLine();
    show_text(find_[0] == '\0'
                  ? fmt::format("{} lines", lines_.size())
                  : fmt::format("{} of {}", hits_.empty() ? 0 : at_ + 1, hits_.size()));
  }

  void take_text(const std::shared_ptr<const std::string>& text) {
    if (text == text_) return;
    text_ = text;
    cleaned_ = clean_lines(*text, 64u << 20);
    lines_.clear();
    size_t at = 0;
    while (at < cleaned_.size()) {
      const size_t end = std::min(cleaned_.find('\n', at), cleaned_.size());
      lines_.push_back(std::string_view(cleaned_).substr(at, end - at));
      at = end + 1;
    }
    search();
    scroll_to_end_ = hits_.empty();
  }

  void search() {
    hits_.clear();
    at_ = 0;
    const std::string wanted = lowered(find_);
    for (size_t i = 0; !wanted.empty() && i < lines_.size(); ++i) {
      if (lowered(lines_[i]).find(wanted) != std::string::npos) hits_.push_back(i);
    }
    scroll_to_hit_ = !hits_.empty();
  }

  void step(int way) {
    if (hits_.empty()) return;
    at_ = (at_ + hits_.size() + static_cast<size_t>(way + static_cast<int>(hits_.size()))) %
          hits_.size();
    scroll_to_hit_ = true;
  }

  void draw_lines(const UiStyle& style) {
    if (!ImGui::BeginChild("##lines", ImVec2(0, 0), ImGuiChildFlags_FrameStyle,
                           ImGuiWindowFlags_HorizontalScrollbar)) {
      ImGui::EndChild();
      return;
    }
    ImGui::PushFont(style.mono, 0.0f);
    const float height = ImGui::GetTextLineHeightWithSpacing();
    if (scroll_to_hit_ && !hits_.empty()) {
      ImGui::SetScrollY(static_cast<float>(hits_[at_]) * height - ImGui::GetWindowHeight() * 0.4f);
    } else if (scroll_to_end_) {
      ImGui::SetScrollY(static_cast<float>(lines_.size()) * height);
    }
    scroll_to_hit_ = scroll_to_end_ = false;
    ImGuiListClipper clipper;
    clipper.Begin(static_cast<int>(lines_.size()), height);
    while (clipper.Step()) {
      for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
        const auto line = static_cast<size_t>(i);
        const bool hit = std::binary_search(hits_.begin(), hits_.end(), line);
        if (hit) {
          const ImVec2 min = ImGui::GetCursorScreenPos();
          const bool current = line == hits_[at_];
          ImGui::GetWindowDrawList()->AddRectFilled(
              min, min + ImVec2(ImGui::GetWindowWidth() + ImGui::GetScrollMaxX(), height),
              with_alpha(series_color(0, style.theme), current ? 0.45f : 0.18f));
        }
        show_text(lines_[line]);
      }
    }
    ImGui::PopFont();
    ImGui::EndChild();
  }

  std::string log_;
  std::shared_ptr<const std::string> text_;
  std::string cleaned_;
  std::vector<std::string_view> lines_;  // into cleaned_
  std::vector<size_t> hits_;             // lines with what is looked for
  size_t at_ = 0;                        // into hits_
  bool scroll_to_hit_ = false, scroll_to_end_ = false;
  char find_[128] = "";
};

}  // namespace

std::unique_ptr<Panel> make_log_panel() {
  return std::make_unique<LogPanel>();
}

}  // namespace moonshard::viewer
