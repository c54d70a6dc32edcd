// The lane area: a head per rank with its communication, below it lanes with their rows of spans.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/trace_parts.h"
#include "viewer/panels/trace_text.h"
#include "viewer/tracing/trace_index.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

using Strip = TraceViewCache::Strip;

constexpr float kMinTextEms = 1.9f;  // narrower boxes have no name
constexpr float kBandAlpha = 0.10f;

ImU32 exposed_color(const TraceFrame& frame) {
  return series_color(*named_series_color("exposed communication"), frame.style.theme);
}

void draw_arrow(const TraceFrame& frame, ImVec2 center, bool closed, ImU32 color) {
  const float r = 0.28f * frame.em;
  ImDrawList* draw = ImGui::GetWindowDrawList();
  if (closed) {
    draw->AddTriangleFilled(ImVec2(center.x - r * 0.7f, center.y - r),
                            ImVec2(center.x + r, center.y),
                            ImVec2(center.x - r * 0.7f, center.y + r), color);
  } else {
    draw->AddTriangleFilled(ImVec2(center.x - r, center.y - r * 0.7f),
                            ImVec2(center.x + r, center.y - r * 0.7f),
                            ImVec2(center.x, center.y + r), color);
  }
}

// Boxes of spans too narrow to see are the fainter the less time is in them. In few steps, so that
// neighbours can still be drawn as one.
float faintness(float fill) {
  return 0.4f + 0.6f * std::ceil(fill * 5) / 5;
}

// Spans of one row. Neighbouring narrow boxes of one colour are drawn as one rectangle.
class RowDrawing {
 public:
  RowDrawing(const TraceFrame& frame, uint32_t row, float top)
      : frame_(frame), number_(row), top_(top), bottom_(top + frame.row_height() - 1) {}

  void draw() {
    TraceViewState& state = frame_.state;
    const TraceRow& row = frame_.index.row(frame_.trace, number_);
    std::vector<TraceBox>& boxes = state.cache.boxes;
    state.num_looked += find_boxes(row, frame_.scale, frame_.min_box, boxes);
    state.num_boxes += boxes.size();
    const TraceSearch& search = state.cache.search;
    const ImU32 background = frame_.style.colors().background;
    const float text_width = kMinTextEms * frame_.em;
    for (const TraceBox& box : boxes) {
      const uint32_t name = row.name[box.shown];
      const bool dim =
          search.active() && !(box.count == 1 ? search.matches_name(name)
                                              : search.any_in(number_, box.first, box.count));
      ImU32 color = name_color(frame_, name);
      if (dim) color = mix(color, background, 0.78f);
      const float x0 = frame_.chart_x + box.x0;
      float x1 = frame_.chart_x + box.x1;
      if (x1 - x0 < 4) {
        x1 = std::max(x1, x0 + (row.length_us[box.shown] > 0 ? 1.0f : 1.5f));
        narrow(x0, x1, with_alpha(color, faintness(box.fill)));
        continue;
      }
      flush();
      // A gap parts neighbours; text on a many-box would name only one of them.
      draw_->AddRectFilled(ImVec2(x0, top_), ImVec2(x1 - 1, bottom_), color);
      if (x1 - x0 < text_width || box.count > 1) continue;
      const ImU32 ink = dim ? frame_.style.colors().muted_text : readable_text_on(color);
      draw_text(name, x0, x1 - 1, ink);
    }
    flush();
    if (state.selected && state.selected->row == number_) outline(row, state.selected->index);
  }

 private:
  void narrow(float x0, float x1, ImU32 color) {
    if (pending_ && color == pending_color_ && x0 <= pending_x1_ + 0.5f) {
      pending_x1_ = std::max(pending_x1_, x1);
      return;
    }
    flush();
    pending_ = true;
    pending_x0_ = x0;
    pending_x1_ = x1;
    pending_color_ = color;
  }

  void flush() {
    if (!pending_) return;
    draw_->AddRectFilled(ImVec2(pending_x0_, top_), ImVec2(pending_x1_, bottom_), pending_color_);
    pending_ = false;
  }

  void draw_text(uint32_t name, float x0, float x1, ImU32 ink) {
    const TraceViewCache::Label& label = name_label(frame_, name);
    const float pad = 0.3f * frame_.em;
    const bool fits = label.width < x1 - x0 - 2 * pad;
    // "autograd::engine::evaluate_function: MulBackward0" says most at its end.
    const std::string_view text =
        fits ? std::string_view(label.text) : std::string_view(label.text).substr(label.tail);
    const ImVec2 at(x0 + pad, top_ + 0.04f * frame_.em);
    const ImVec4 clip(x0, top_, x1 - 1, bottom_ + 1);
    draw_->AddText(ImGui::GetFont(), frame_.em, at, ink, text.data(), text.data() + text.size(),
                   0.0f, fits ? nullptr : &clip);
  }

  void outline(const TraceRow& row, uint32_t index) {
    const float limit = frame_.right() + 10;
    const auto at = [&](double time) {
      return std::clamp(frame_.x_of(time), frame_.chart_x - 10, limit);
    };
    const float x0 = at(row.start_us[index]);
    const float x1 = std::max(at(end_of(row, index)), x0 + 3);
    const ImU32 ink = frame_.style.colors().text;
    draw_->AddRect(ImVec2(x0 - 1, top_ - 1), ImVec2(x1 + 1, bottom_ + 1), ink, 0, 2.0f);
  }

  const TraceFrame& frame_;
  uint32_t number_;
  float top_, bottom_;
  ImDrawList* draw_ = ImGui::GetWindowDrawList();
  bool pending_ = false;
  float pending_x0_ = 0, pending_x1_ = 0;
  ImU32 pending_color_ = 0;
};

void draw_pieces(const TraceFrame& frame, const TimePieces& pieces, float top, float bottom,
                 ImU32 color, float alpha) {
  std::vector<TraceBox>& boxes = frame.state.cache.boxes;
  frame.state.num_looked += find_boxes(pieces, frame.scale, frame.min_box, boxes);
  for (const TraceBox& box : boxes) {
    const float x0 = frame.chart_x + box.x0;
    ImGui::GetWindowDrawList()->AddRectFilled(
        ImVec2(x0, top), ImVec2(std::max(frame.chart_x + box.x1, x0 + 1), bottom),
        with_alpha(color, alpha * faintness(box.fill)));
  }
}

void draw_rank_head(const TraceFrame& frame, const Strip& strip, float top) {
  const TraceRank& rank = frame.index.ranks[strip.index];
  const PlotColors& colors = frame.style.colors();
  draw_head(frame, top, strip.height, rank_title(frame.trace, rank),
            frame.state.rank_closed[strip.index] != 0);
  const float right = frame.right();
  if (rank.communication.total_us() <= 0) return;
  // The whole of the communication as a thin line, what nothing hides as a thick one.
  const float base = top + strip.height - 3;
  const ImU32 color = exposed_color(frame);
  draw_pieces(frame, rank.communication, base - 0.20f * frame.em, base, color, 0.45f);
  draw_pieces(frame, rank.exposed, base - 0.42f * frame.em, base, color, 1.0f);
  const double all = rank.communication.covered_us(frame.scale.window);
  const double exposed = rank.exposed.covered_us(frame.scale.window);
  const std::string text = all > 0
                               ? fmt::format("communication {}, exposed {} ({})", format_time(all),
                                             format_time(exposed), format_share(exposed, all))
                               : std::string("no communication here");
  draw_clipped(frame, ImVec2(frame.chart_x + 0.4f * frame.em, top + 0.05f * frame.em), right,
               colors.muted_text, text);
}

void draw_lane(const TraceFrame& frame, const Strip& strip, float top, float clip_top,
               float clip_bottom) {
  const uint32_t lane = strip.index;
  const PlotColors& colors = frame.style.colors();
  ImDrawList* draw = ImGui::GetWindowDrawList();
  const float left = frame.left(), right = frame.right();
  const float bottom = top + strip.height;
  const uint32_t first = frame.index.lane_row[lane];
  const bool closed = frame.state.lane_closed[lane] != 0;
  const size_t num_rows = closed ? 1 : frame.trace.lanes[lane].rows.size();
  const float height = frame.row_height();
  const float rows_top = top + 0.2f * frame.em;
  draw->PushClipRect(ImVec2(frame.chart_x, clip_top), ImVec2(right, clip_bottom), true);
  const float above = (clip_top - rows_top) / height;
  for (size_t r = above > 1 ? static_cast<size_t>(above) : 0; r < num_rows; ++r) {
    const float y = rows_top + static_cast<float>(r) * height;
    if (y > clip_bottom) break;
    RowDrawing(frame, first + static_cast<uint32_t>(r), y).draw();
  }
  draw->PopClipRect();
  draw->AddLine(ImVec2(left, bottom - 0.5f), ImVec2(right, bottom - 0.5f),
                with_alpha(colors.border, 0.45f));
  // The name stays in sight while any part of the lane is.
  const float text_y = std::clamp(clip_top + 0.2f * frame.em, rows_top,
                                  std::max(rows_top, bottom - 1.3f * frame.em));
  if (frame.trace.lanes[lane].rows.size() > 1) {
    draw_arrow(frame, ImVec2(left + 0.9f * frame.em, text_y + 0.6f * frame.em), closed,
               colors.muted_text);
  }
  float name_right = frame.chart_x - 0.4f * frame.em;
  const TraceSearch& search = frame.state.cache.search;
  if (search.active() && search.num_hits_in_lane(lane) > 0) {
    const std::string hits = fmt::format("{}", search.num_hits_in_lane(lane));
    name_right -= ImGui::CalcTextSize(hits.c_str()).x;
    draw->AddText(ImVec2(name_right, text_y), series_color(3, frame.style.theme), hits.c_str());
    name_right -= 0.4f * frame.em;
  }
  draw_clipped(frame, ImVec2(left + 1.6f * frame.em, text_y), name_right,
               frame.trace.lanes[lane].gpu ? colors.text : colors.muted_text,
               lane_title(frame.trace, lane));
}

// One band per piece through all lanes of a rank, behind the spans.
void draw_exposed(const TraceFrame& frame, const Strip* first, const Strip* end, float origin_y,
                  float top, float bottom) {
  for (const Strip* strip = first; strip != end && origin_y + strip->y < bottom;) {
    if (strip->kind != Strip::Kind::Lane) {
      ++strip;
      continue;
    }
    const uint32_t rank = frame.index.lane_rank[strip->index];
    const float from = std::max(top, origin_y + strip->y);
    float to = from;
    for (; strip != end && strip->kind == Strip::Kind::Lane && origin_y + strip->y < bottom;
         ++strip) {
      to = std::min(bottom, origin_y + strip->y + strip->height);
    }
    draw_pieces(frame, frame.index.ranks[rank].exposed, from, to, exposed_color(frame), kBandAlpha);
  }
}

TraceHover hover_in_lane(const TraceFrame& frame, const Strip& strip, float top) {
  TraceHover hover;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const float place = (mouse.y - top - 0.2f * frame.em) / frame.row_height();
  const uint32_t lane = strip.index;
  const size_t num_rows = frame.state.lane_closed[lane] ? 1 : frame.trace.lanes[lane].rows.size();
  if (place < 0 || place >= static_cast<float>(num_rows)) return hover;
  const uint32_t number = frame.index.lane_row[lane] + static_cast<uint32_t>(place);
  const TraceRow& row = frame.index.row(frame.trace, number);
  const double slack = frame.min_box / frame.scale.pixels_per_us();
  const double time = frame.time_at(mouse.x);
  const std::optional<uint32_t> found = span_at(row, time, slack);
  if (!found) return hover;
  hover.span = SpanRef{number, *found};
  if (static_cast<double>(row.length_us[*found]) < slack) {
    const auto place_of = [&](double at) {
      return std::ranges::lower_bound(row.start_us, at) - row.start_us.begin();
    };
    hover.count = static_cast<uint32_t>(
        std::max<std::ptrdiff_t>(1, place_of(time + slack / 2) - place_of(time - slack / 2)));
  }
  return hover;
}

}  // namespace

void draw_clipped(const TraceFrame& frame, ImVec2 at, float right, ImU32 color,
                  const std::string& whole) {
  const std::string text = shorten_middle(whole, right - at.x);
  const ImVec4 clip(at.x, at.y - frame.em, right, at.y + 2 * frame.em);
  ImGui::GetWindowDrawList()->AddText(ImGui::GetFont(), frame.em, at, color, text.data(),
                                      text.data() + text.size(), 0.0f, &clip);
}

void draw_head(const TraceFrame& frame, float top, float height, const std::string& title,
               bool closed) {
  const float left = frame.left(), right = frame.right();
  const ImU32 ink = frame.style.colors().text;
  ImGui::GetWindowDrawList()->AddRectFilled(ImVec2(left, top), ImVec2(right, top + height - 1),
                                            ImGui::GetColorU32(ImGuiCol_TableHeaderBg));
  draw_arrow(frame, ImVec2(left + 0.7f * frame.em, top + height / 2), closed, ink);
  ImGui::PushFont(frame.style.bold, 0.0f);
  draw_clipped(frame, ImVec2(left + 1.4f * frame.em, top + (height - 1.17f * frame.em) / 2),
               frame.chart_x - 4, ink, title);
  ImGui::PopFont();
}

void make_strips(const TraceFrame& frame) {
  TraceViewState& state = frame.state;
  std::vector<Strip>& strips = state.cache.strips;
  strips.clear();
  float y = 0;
  const auto add = [&](Strip::Kind kind, size_t index, float height) {
    strips.push_back({kind, static_cast<uint32_t>(index), y, height});
    y += height;
  };
  const float head = 1.95f * frame.em;
  if (!frame.trace.counters.empty()) {
    add(Strip::Kind::CounterHead, 0, head);
    for (size_t i = 0; i < frame.trace.counters.size() && !state.counters_closed; ++i) {
      add(Strip::Kind::Counter, i, 3.2f * frame.em);
    }
  }
  for (size_t r = 0; r < frame.index.ranks.size(); ++r) {
    add(Strip::Kind::RankHead, r, head);
    const TraceRank& rank = frame.index.ranks[r];
    if (state.rank_closed[r]) continue;
    for (uint32_t lane = rank.first_lane; lane < rank.first_lane + rank.num_lanes; ++lane) {
      const size_t num_rows =
          state.lane_closed[lane] ? 1 : std::max<size_t>(1, frame.trace.lanes[lane].rows.size());
      add(Strip::Kind::Lane, lane,
          static_cast<float>(num_rows) * frame.row_height() + 0.4f * frame.em + path_height(frame));
    }
  }
  state.cache.total_height = y;
  state.cache.strips_stale = false;
}

const Strip* strip_at(const TraceViewState& state, float y) {
  const std::vector<Strip>& strips = state.cache.strips;
  const auto after = std::upper_bound(strips.begin(), strips.end(), y,
                                      [](float at, const Strip& strip) { return at < strip.y; });
  if (after == strips.begin() || y >= state.cache.total_height) return nullptr;
  return &*(after - 1);
}

TraceHover draw_strips(const TraceFrame& frame, float origin_y, float top, float bottom) {
  TraceHover hover;
  const std::vector<Strip>& strips = frame.state.cache.strips;
  const Strip* first = strip_at(frame.state, std::max(0.0f, top - origin_y));
  if (!first) return hover;
  if (frame.state.show_exposed) {
    draw_exposed(frame, first, strips.data() + strips.size(), origin_y, top, bottom);
  }
  const float mouse_y = ImGui::GetIO().MousePos.y;
  for (const Strip* strip = first; strip != strips.data() + strips.size(); ++strip) {
    const float y = origin_y + strip->y;
    if (y > bottom) break;
    const bool hovered = frame.mouse_inside && mouse_y >= y && mouse_y < y + strip->height;
    switch (strip->kind) {
      case Strip::Kind::RankHead:
        draw_rank_head(frame, *strip, y);
        break;
      case Strip::Kind::Lane:
        draw_lane(frame, *strip, y, top, bottom);
        if (hovered) hover = hover_in_lane(frame, *strip, y);
        break;
      case Strip::Kind::CounterHead:
        draw_head(frame, y, strip->height, "counters", frame.state.counters_closed);
        break;
      case Strip::Kind::Counter:
        draw_counter(frame, strip->index, y, strip->height);
        if (hovered) hover.counter = strip->index;
        break;
    }
  }
  return hover;
}

}  // namespace moonshard::viewer
