#include "viewer/render/plot_text.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include <imgui_internal.h>

#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

bool breaks_after(char c, char next) {
  if (c == '.') return next < '0' || next > '9';  // not inside a number
  return c == ' ' || c == '_' || c == '-' || c == '/' || c == '+' || c == ',';
}

// Pieces that must stay on one line, each with its separator at the end.
std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < text.size(); ++i) {
    words.back() += text[i];
    if (i + 1 < text.size() && breaks_after(text[i], text[i + 1])) words.emplace_back();
  }
  return words;
}

std::string without_end_spaces(std::string text) {
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

}  // namespace

ImVec2 text_size(std::string_view text) {
  return ImGui::CalcTextSize(text.data(), text.data() + text.size());
}

std::string fit_text(const std::string& text, float max_width) {
  if (text_size(text).x <= max_width) return text;
  const auto fits = [&](size_t length) {
    return text_size(text.substr(0, length) + "...").x <= max_width;
  };
  size_t kept =
      *std::ranges::partition_point(std::views::iota(size_t{1}, text.size() + 1), fits) - 1;
  while (kept > 0 && (static_cast<unsigned char>(text[kept]) & 0xC0) == 0x80) --kept;
  return text.substr(0, kept) + "...";
}

namespace {

// Bytes that two names share from their beginnings, or from their ends.
size_t shared_start(std::string_view a, std::string_view b) {
  return a == b ? 0 : static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

size_t shared_end(std::string_view a, std::string_view b) {
  size_t count = 0;
  while (a != b && count < std::min(a.size(), b.size()) &&
         a[a.size() - 1 - count] == b[b.size() - 1 - count]) {
    ++count;
  }
  return count;
}

// The nearest place before that is not inside of a character.
size_t whole(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::string fit_among(const std::string& name, size_t start, size_t end, float max_width) {
  constexpr size_t kWorthCutting = 4;
  // The end stays whole, with as much of the shared beginning as fits before it.
  const std::string rest = name.substr(whole(name, start));
  if (start > kWorthCutting && text_size("..." + rest).x <= max_width) {
    size_t kept = 0;
    while (kept + 1 < start &&
           text_size(name.substr(0, whole(name, kept + 1)) + "..." + rest).x <= max_width) {
      ++kept;
    }
    return name.substr(0, whole(name, kept)) + "..." + rest;
  }
  // Else only what differs, without the end that it shares.
  if (start + end < name.size() && start + end > kWorthCutting) {
    const size_t from = whole(name, start), to = whole(name, name.size() - end);
    std::string core = (from > 0 ? "..." : "") + name.substr(from, to - from);
    if (to < name.size()) core += "...";
    if (text_size(core).x <= max_width) return core;
  }
  return shorten_middle(name, max_width);
}

}  // namespace

std::vector<std::string> fit_names(const std::vector<std::string>& names, float max_width) {
  std::vector<std::string> fitting;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    size_t start = 0, end = 0;
    for (const size_t beside : {i - 1, i + 1}) {
      if (beside >= names.size()) continue;  // also before the first
      start = std::max(start, shared_start(name, names[beside]));
      end = std::max(end, shared_end(name, names[beside]));
    }
    const bool fits = text_size(name).x <= max_width;
    fitting.push_back(fits ? name : fit_among(name, start, end, max_width));
  }
  return fitting;
}

std::string fit_label(const std::string& label, float max_width) {
  const size_t unit = label.rfind(" [");
  if (unit == std::string::npos || !label.ends_with(']')) return fit_text(label, max_width);
  const std::string end = label.substr(unit);
  const float room = max_width - text_size(end).x;
  return room > 0 ? fit_text(label.substr(0, unit), room) + end : fit_text(label, max_width);
}

std::vector<std::string> wrap_text(const std::string& text, float max_width, size_t max_lines) {
  std::vector<std::string> lines(1);
  for (const std::string& word : split_words(text)) {
    if (!lines.back().empty() && text_size(without_end_spaces(lines.back() + word)).x > max_width) {
      lines.emplace_back();
    }
    lines.back() += word;
    if (lines.size() > max_lines || text_size(without_end_spaces(lines.back())).x > max_width) {
      return {};
    }
  }
  for (std::string& line : lines) line = without_end_spaces(line);
  return lines;
}

void draw_text(ImDrawList* draw, ImVec2 at, ImU32 color, std::string_view text) {
  // Whole pixels keep the glyphs sharp.
  draw->AddText(ImVec2(std::round(at.x), std::round(at.y)), color, text.data(),
                text.data() + text.size());
}

void draw_text_centered(ImDrawList* draw, ImVec2 center, ImU32 color, std::string_view text) {
  draw_text(draw, center - text_size(text) / 2, color, text);
}

void draw_text_turned(ImDrawList* draw, ImVec2 anchor, float angle, float align, ImU32 color,
                      std::string_view text) {
  // ImGui draws level text only; as ImPlot does for its vertical labels, place each glyph's quad.
  const ImVec2 size = text_size(text);
  const float cosine = std::cos(angle), sine = std::sin(angle);
  const ImVec2 origin(-size.x * align, -size.y / 2);
  const auto turned = [&](float x, float y) {
    return ImVec2(anchor.x + (x + origin.x) * cosine + (y + origin.y) * sine,
                  anchor.y - (x + origin.x) * sine + (y + origin.y) * cosine);
  };
  ImFontBaked* font = ImGui::GetFontBaked();
  const float scale = ImGui::GetFontSize() / font->Size;
  float pen = 0;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    unsigned code = 0;
    at += ImTextCharFromUtf8(&code, at, end);
    if (code == 0) break;
    const ImFontGlyph* glyph = font->FindGlyph(static_cast<ImWchar>(code));
    if (glyph->Visible) {
      const float x0 = pen + glyph->X0 * scale, x1 = pen + glyph->X1 * scale;
      const float y0 = glyph->Y0 * scale, y1 = glyph->Y1 * scale;
      draw->PrimReserve(6, 4);
      draw->PrimQuadUV(turned(x0, y0), turned(x1, y0), turned(x1, y1), turned(x0, y1),
                       ImVec2(glyph->U0, glyph->V0), ImVec2(glyph->U1, glyph->V0),
                       ImVec2(glyph->U1, glyph->V1), ImVec2(glyph->U0, glyph->V1), color);
    }
    pen += glyph->AdvanceX * scale;
  }
}

}  // namespace moonshard::viewer
