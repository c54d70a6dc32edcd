#include "viewer/widgets/text.h"

#include <algorithm>

#include <imgui.h>

namespace moonshard::viewer {

void show_text(std::string_view text) {
  ImGui::TextUnformatted(text.data(), text.data() + text.size());
}

void show_text(std::string_view text, ImU32 color) {
  ImGui::PushStyleColor(ImGuiCol_Text, color);
  show_text(text);
  ImGui::PopStyleColor();
}

void show_wrapped(std::string_view text, ImU32 color) {
  ImGui::PushTextWrapPos(0.0f);
  show_text(text, color);
  ImGui::PopTextWrapPos();
}

void show_bold(std::string_view text, const UiStyle& style) {
  ImGui::PushFont(style.bold, 0.0f);
  show_text(text);
  ImGui::PopFont();
}

void show_right(std::string_view text) {
  const float width = ImGui::CalcTextSize(text.data(), text.data() + text.size()).x;
  const float room = ImGui::GetContentRegionAvail().x;
  ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, room - width));
  show_text(text);
}

std::string shorten_middle(const std::string& text, float max_width) {
  const auto width = [](const std::string& part) { return ImGui::CalcTextSize(part.c_str()).x; };
  if (width(text) <= max_width) return text;
  const auto inside = [&](size_t at) {  // of a character of several bytes
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  const auto shortened = [&](size_t kept) {
    size_t head = (kept + 1) / 2, tail = text.size() - kept / 2;
    while (head > 0 && inside(head)) --head;
    while (inside(tail)) ++tail;
    return text.substr(0, head) + "..." + text.substr(tail);
  };
  size_t low = 0, high = text.size() - 1;
  while (low < high) {  // as many letters as fit
    const size_t middle = (low + high + 1) / 2;
    width(shortened(middle)) <= max_width ? (void)(low = middle) : (void)(high = middle - 1);
  }
  return shortened(low);
}

std::string telling_part(const std::string& name, const std::vector<std::string>& names) {
  constexpr std::string_view kBreaks = "._-/";
  size_t start = name.size(), end = name.size();  // that all names share
  bool others = false;
  for (const std::string& other : names) {
    if (other == name) continue;
    others = true;
    size_t count = 0;
    while (count < std::min(name.size(), other.size()) && name[count] == other[count]) ++count;
    start = std::min(start, count);
    count = 0;
    while (count < std::min(name.size(), other.size()) &&
           name[name.size() - 1 - count] == other[other.size() - 1 - count]) {
      ++count;
    }
    end = std::min(end, count);
  }
  if (!others) return name;
  while (start > 0 && kBreaks.find(name[start - 1]) == std::string_view::npos) --start;
  while (end > 0 && kBreaks.find(name[name.size() - end]) == std::string_view::npos) --end;
  return start + end < name.size() ? name.substr(start, name.size() - end - start) : name;
}

void show_header(const char* label, bool right) {
  if (right) {
    // ImGui draws the arrow of a sorted column at its right end.
    const bool sorted = (ImGui::TableGetColumnFlags() & ImGuiTableColumnFlags_IsSorted) != 0;
    const float arrow =
        sorted ? 0.65f * ImGui::GetFontSize() + ImGui::GetStyle().FramePadding.x : 0.0f;
    const float room = ImGui::GetContentRegionAvail().x - arrow;
    const float width = ImGui::CalcTextSize(label, nullptr, true).x;
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, room - width));
  }
  ImGui::TableHeader(label);
}

void show_status(std::string_view status, const UiStyle& style) {
  const ImU32 color = status_color(status, style.theme);
  const float em = ImGui::GetFontSize();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 center(at.x + 0.35f * em, at.y + ImGui::GetTextLineHeight() / 2);
  if (status == "planned") {  // not there yet: a ring
    ImGui::GetWindowDrawList()->AddCircle(center, 0.24f * em, color, 0, 0.1f * em);
  } else {
    ImGui::GetWindowDrawList()->AddCircleFilled(center, 0.27f * em, color);
  }
  ImGui::SetCursorPosX(ImGui::GetCursorPosX() + 1.05f * em);
  show_text(status, color);
}

void show_tooltip(std::string_view text) {
  if (!ImGui::BeginTooltip()) return;
  ImGui::PushTextWrapPos(34 * ImGui::GetFontSize());
  show_text(text);
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

void explain_item(std::string_view text) {
  if (!text.empty() && ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) show_tooltip(text);
}

void show_empty_state(std::string_view what, std::string_view next, const UiStyle& style) {
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const auto centered = [&](std::string_view text, ImU32 color) {
    const float wrap = std::min(room.x * 0.9f, 40 * ImGui::GetFontSize());
    const float width = ImGui::CalcTextSize(text.data(), text.data() + text.size(), false, wrap).x;
    const float x = ImGui::GetCursorPosX() + std::max(0.0f, (room.x - width) / 2);
    ImGui::SetCursorPosX(x);
    ImGui::PushTextWrapPos(x + wrap);
    show_text(text, color);
    ImGui::PopTextWrapPos();
  };
  ImGui::SetCursorPosY(ImGui::GetCursorPosY() + std::max(0.0f, room.y * 0.4f));
  ImGui::PushFont(style.bold, 0.0f);
  centered(what, style.colors().text);
  ImGui::PopFont();
  centered(next, style.colors().muted_text);
}

}  // namespace moonshard::viewer
