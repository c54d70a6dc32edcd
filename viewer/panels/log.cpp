// The log panel: what the ranks of the selected point wrote, with a search.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/panel.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/format.h"
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
  LogPanel() : Panel({"log", "Log", DockPlace::Side}) {}
  std::vector<std::pair<std::string, std::string>> shortcuts() const override {
    return {{"F3, Shift+F3", "next and previous line found in the log"}};
  }

  void draw(const PanelContext& context) override {
    const std::optional<SelectedFiles> selected = selected_files(
        context, &PointDetail::logs, "This point has no log",
        "Logs appear when the point starts; folders that are passed on may come without them.");
    if (!selected) return;
    const auto& [folder, id, logs] = *selected;
    if (std::ranges::find(logs, log_) == logs.end()) log_ = logs.front();
    draw_controls(logs);
    const ReadRequest request{ReadRequest::Kind::Log, folder, {"points/" + id + "/" + log_}};
    const Loaded<std::string> text = context.store.file<std::string>(request);
    if (!show_loading(text, context.store, request, context.style)) return;
    take_text(text.value);
    draw_lines(context.style);
  }

 private:
  void draw_controls(const std::vector<std::string>& logs) {
    ImGui::SetNextItemWidth(10 * ImGui::GetFontSize());
    pick_name("##log", log_, logs);
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
    const auto draw_line = [&](size_t line) {
      if (std::ranges::binary_search(hits_, line)) {
        const ImVec2 min = ImGui::GetCursorScreenPos();
        const bool current = line == hits_[at_];
        ImGui::GetWindowDrawList()->AddRectFilled(
            min, min + ImVec2(ImGui::GetWindowWidth() + ImGui::GetScrollMaxX(), height),
            with_alpha(series_color(0, style.theme), current ? 0.45f : 0.18f));
      }
      show_text(lines_[line]);
    };
    draw_rows_in_sight(lines_.size(), draw_line, height);
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

const MakePanel make_log_panel = make_panel<LogPanel>;

}  // namespace moonshard::viewer
