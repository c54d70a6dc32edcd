// The critical path over the lanes, and its sums beside them.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <imgui.h>

#include "runtime/tracing/critical_path.h"
#include "viewer/panels/trace_parts.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kKinds = std::size(tracing::kPathKinds);

// Kernels as computation, communication as everywhere; gaps are nobody's.
ImU32 kind_color(const TraceFrame& frame, size_t kind) {
  constexpr std::array<size_t, kKinds> kSeries = {3, 0, 4, 2, 0};
  if (kind + 1 == kKinds) return frame.style.colors().muted_text;
  return series_color(kSeries[kind], frame.style.theme);
}

size_t kind_of(const std::string& name) {
  return static_cast<size_t>(std::ranges::find(tracing::kPathKinds, name) -
                             std::begin(tracing::kPathKinds));
}

// Where the path's lanes are on the screen.
struct LanePlace {
  float top = 0, bottom = -1;  // no lane: the path is on one that is not shown
  double shift_us = 0;         // from the file's clock to the axis
};

struct PathPixel {
  float x0 = 0, x1 = 0;
  std::array<double, kKinds> us{};
};

std::vector<LanePlace> lane_places(const TraceFrame& frame, float origin_y) {
  const TracePath& path = *frame.state.path;
  std::vector<LanePlace> places(path.lanes.size());
  for (const TraceViewCache::Strip& strip : frame.state.cache.strips) {
    if (strip.kind != TraceViewCache::Strip::Kind::Lane) continue;
    const TraceLane& lane = frame.trace.lanes[strip.index];
    if (lane.file != frame.state.path_file) continue;
    const auto known = std::ranges::find(path.lanes, lane.key);
    if (known == path.lanes.end()) continue;
    const float bottom = origin_y + strip.y + strip.height - 2;
    places[static_cast<size_t>(known - path.lanes.begin())] = {bottom - path_height(frame), bottom,
                                                               lane.origin_us};
  }
  return places;
}

void show_sums(const TraceFrame& frame, const char* title, const std::vector<TracePathSum>& sums,
               size_t most) {
  const TracePath& path = *frame.state.path;
  constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_SizingStretchProp |
                                     ImGuiTableFlags_NoSavedSettings | ImGuiTableFlags_PadOuterX;
  if (sums.empty() || !ImGui::BeginTable(title, 3, kFlags)) return;
  ImGui::TableSetupColumn("##name", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("##time", ImGuiTableColumnFlags_WidthFixed, 5.2f * frame.em);
  ImGui::TableSetupColumn("##share", ImGuiTableColumnFlags_WidthFixed, 3.8f * frame.em);
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (const char* head : {title, "time", "share"}) {
    ImGui::TableNextColumn();
    show_header(head, head != title);
  }
  for (size_t i = 0; i < std::min(most, sums.size()); ++i) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    float width = ImGui::GetContentRegionAvail().x;
    const size_t kind = kind_of(sums[i].name);
    if (kind < kKinds) {
      const ImVec2 at = ImGui::GetCursorScreenPos();
      const float side = 0.7f * frame.em;
      const float y = at.y + (ImGui::GetTextLineHeight() - side) / 2;
      ImGui::GetWindowDrawList()->AddRectFilled(ImVec2(at.x, y), ImVec2(at.x + side, y + side),
                                                kind_color(frame, kind));
      ImGui::SetCursorScreenPos(ImVec2(at.x + 1.1f * frame.em, at.y));
      width -= 1.1f * frame.em;
    }
    const std::string name = clean_text(sums[i].name, 512);
    show_text(shorten_middle(name == "-" ? "not named" : name, width));
    if (ImGui::IsItemHovered()) show_tooltip(name == "-" ? "work without such a name" : name);
    ImGui::TableNextColumn();
    show_right(format_time(sums[i].us));
    ImGui::TableNextColumn();
    show_right(format_share(sums[i].us, path.end_us - path.begin_us));
  }
  ImGui::EndTable();
}

void show_forecasts(const TraceFrame& frame) {
  const TracePath& path = *frame.state.path;
  if (path.forecasts.empty() ||
      !ImGui::BeginTable("##forecasts", 3,
                         ImGuiTableFlags_SizingStretchProp | ImGuiTableFlags_NoSavedSettings |
                             ImGuiTableFlags_PadOuterX))
    return;
  ImGui::TableSetupColumn("##change", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("##time", ImGuiTableColumnFlags_WidthFixed, 5.2f * frame.em);
  ImGui::TableSetupColumn("##percent", ImGuiTableColumnFlags_WidthFixed, 3.8f * frame.em);
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (const char* head : {"what if", "step", "change"}) {
    ImGui::TableNextColumn();
    show_header(head, std::string_view(head) != "what if");
  }
  for (const TraceForecast& forecast : path.forecasts) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    const std::string change = clean_text(forecast.change, 512);
    show_text(shorten_middle(change, ImGui::GetContentRegionAvail().x));
    if (ImGui::IsItemHovered())
      show_tooltip(forecast.note.empty() ? change : change + "\n" + clean_text(forecast.note));
    ImGui::TableNextColumn();
    show_right(format_time(forecast.us));
    ImGui::TableNextColumn();
    const double length = path.end_us - path.begin_us;
    show_right(length > 0 ? fmt::format("{:+.1f} %", 100 * (forecast.us / length - 1)) : "-");
  }
  ImGui::EndTable();
}

}  // namespace

float path_height(const TraceFrame& frame) {
  return frame.state.path != nullptr ? 0.45f * frame.em : 0;
}

void draw_path(const TraceFrame& frame, float origin_y, float top, float bottom) {
  if (frame.state.path == nullptr) return;
  const TracePath& path = *frame.state.path;
  const std::vector<LanePlace> places = lane_places(frame, origin_y);
  if (places.empty()) return;
  ImDrawList* draw = ImGui::GetWindowDrawList();
  draw->PushClipRect(ImVec2(frame.chart_x, top), ImVec2(frame.right(), bottom), true);
  const ImU32 link = with_alpha(frame.style.colors().text, 0.55f);
  // Pieces narrower than a pixel share it: it has the colour of the kind with most of its time.
  std::vector<PathPixel> pixels(places.size());
  const auto flush = [&](size_t lane) {
    PathPixel& pixel = pixels[lane];
    if (pixel.x1 <= pixel.x0) return;
    const auto most = std::ranges::max_element(pixel.us) - pixel.us.begin();
    draw->AddRectFilled(ImVec2(pixel.x0, places[lane].top), ImVec2(pixel.x1, places[lane].bottom),
                        kind_color(frame, static_cast<size_t>(most)));
    pixel = {};
  };
  float linked_to = -1e9f;
  const LanePlace* before = nullptr;
  for (const TracePathPiece& piece : path.pieces) {
    const LanePlace& place = places[piece.lane];
    if (place.bottom < 0) continue;
    const float x0 = frame.x_of(piece.start_us - place.shift_us);
    const float x1 = frame.x_of(piece.end_us - place.shift_us);
    if (before != nullptr && before != &place && x0 > frame.chart_x - 2 && x0 > linked_to + 3 &&
        x0 < frame.right() + 2) {
      draw->AddLine(ImVec2(x0, std::min(before->top, place.top)),
                    ImVec2(x0, std::max(before->bottom, place.bottom)), link, 1.0f);
      linked_to = x0;
    }
    before = &place;
    if (x1 < frame.chart_x || x0 > frame.right()) continue;
    PathPixel& pixel = pixels[piece.lane];
    const bool is_next = pixel.x1 > pixel.x0 && x0 <= pixel.x1 + 0.5f && pixel.x1 < pixel.x0 + 1.5f;
    if (!is_next) {
      flush(piece.lane);
      pixel.x0 = x0;
    }
    pixel.x1 = std::max({pixel.x1, x1, pixel.x0 + 1});
    pixel.us[piece.kind] += piece.end_us - piece.start_us;
  }
  for (size_t lane = 0; lane < places.size(); ++lane) flush(lane);
  draw->PopClipRect();
}

void draw_path_sums(const TraceFrame& frame) {
  const TraceViewState& state = frame.state;
  if (!state.show_path) return;
  if (!ImGui::CollapsingHeader("Critical path", ImGuiTreeNodeFlags_DefaultOpen)) return;
  const ImU32 muted = frame.style.colors().muted_text;
  if (state.path == nullptr) {
    show_wrapped(state.path_error.empty() ? "looking for it ..." : clean_text(state.path_error),
                 state.path_error.empty() ? muted : status_color("failed", frame.style.theme));
    return;
  }
  const TracePath& path = *state.path;
  std::string about = fmt::format("{}; every part had to wait for the one before",
                                  format_time(path.end_us - path.begin_us));
  if (path.num_steps > 1) about += fmt::format("; the last of {} steps", path.num_steps);
  if (frame.index.ranks.size() > 1) about += "; of one rank";
  show_wrapped(about, muted);
  show_sums(frame, "kind", path.kinds, kKinds);
  show_forecasts(frame);
  show_sums(frame, "phase", path.phases, 8);
  if (path.layers.size() > 1) show_sums(frame, "layer", path.layers, 6);
  show_sums(frame, "kernel, operator or gap", path.names, 8);
}

}  // namespace moonshard::viewer
