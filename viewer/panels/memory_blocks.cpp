#include "viewer/panels/memory_blocks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <imgui.h>
#include <implot.h>

#include "viewer/panels/chart_panel.h"
#include "viewer/widgets/axis_names.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxBlockOwners = 14;
constexpr const char* kOtherOwners = "others";

// Bytes of each owner after each of the events, thinned to `count` of them.
std::vector<std::vector<double>> owner_history(const MemorySnapshot& snapshot,
                                               const BlockOwners& owners, size_t count) {
  std::vector<std::vector<double>> bytes(owners.names.size(), std::vector<double>(count, 0.0));
  const double per_entry =
      static_cast<double>(std::max<uint64_t>(snapshot.num_events, 1)) / static_cast<double>(count);
  for (const SnapshotAllocation& allocation : snapshot.allocations) {
    std::vector<double>& own = bytes[owners.of_site[allocation.site]];
    const auto from = static_cast<size_t>(std::ceil(allocation.begin / per_entry));
    const auto to = static_cast<size_t>(std::ceil(allocation.end / per_entry));
    for (size_t i = from; i < std::min(to, count); ++i) own[i] += allocation.bytes;
  }
  return bytes;
}

}  // namespace

BlockOwners block_owners(const MemorySnapshot& snapshot) {
  std::map<std::string, double> sums;
  for (const SnapshotAllocation& allocation : snapshot.allocations) {
    sums[snapshot.sites[allocation.site].owner] += allocation.bytes;
  }
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, bytes] : sums) order.emplace_back(bytes, name);
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.first > b.first; });
  BlockOwners owners;
  std::map<std::string, size_t> places;
  for (const auto& [bytes, name] : order) {
    if (owners.names.size() == kMaxBlockOwners) {
      if (owners.names.back() != kOtherOwners) owners.names.emplace_back(kOtherOwners);
      break;
    }
    places[name] = owners.names.size();
    owners.names.push_back(name);
  }
  for (const SnapshotSite& site : snapshot.sites) {
    const auto found = places.find(site.owner);
    owners.of_site.push_back(found != places.end()  ? found->second
                             : owners.names.empty() ? 0
                                                    : owners.names.size() - 1);
  }
  return owners;
}

records::PlotSpec blocks_spec(const MemorySnapshot& snapshot, const std::string& file) {
  records::PlotSpec spec;
  const BlockOwners owners = block_owners(snapshot);
  const size_t count = std::min<size_t>(snapshot.num_events, 1500);
  if (count < 2 || owners.names.empty()) return spec;
  const auto history = owner_history(snapshot, owners, count);
  double highest = 0;
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (const std::vector<double>& own : history) sum += own[i];
    highest = std::max(highest, sum);
  }
  const Unit unit = memory_unit(highest);
  records::PlotPanel panel;
  panel.kind = records::PlotKind::StackedArea;
  panel.x.label = "event";
  panel.y = {"allocated", unit.name};
  const double per_entry = static_cast<double>(snapshot.num_events) / static_cast<double>(count);
  for (size_t o = 0; o < owners.names.size(); ++o) {
    records::PlotSeries& series = panel.series.emplace_back();
    series.name = shown_name(owners.names[o]);
    for (size_t i = 0; i < count; ++i) {
      series.x.push_back(static_cast<double>(i) * per_entry);
      series.y.push_back(history[o][i] * unit.factor);
    }
  }
  spec.title = "Memory by owner over the events of " + file;
  if (snapshot.allocations.size() < snapshot.num_allocations) {
    spec.note = fmt::format("The largest {} of {} allocations.", snapshot.allocations.size(),
                            snapshot.num_allocations);
  }
  spec.panels.push_back(std::move(panel));
  return spec;
}

void MemoryBlocks::show(std::shared_ptr<const MemorySnapshot> snapshot) {
  snapshot_ = std::move(snapshot);
  layout_ = layout_blocks(snapshot_->allocations);
  owners_ = block_owners(*snapshot_);
  legend_ = Legend();
  legend_.kind = records::PlotKind::StackedArea;
  // A name's own colour, unless a larger owner has it already.
  std::set<size_t> taken;
  std::vector<std::optional<size_t>> colors;
  for (const std::string& name : owners_.names) {
    colors.push_back(named_series_color(name));
    if (colors.back() && !taken.insert(*colors.back()).second) colors.back().reset();
  }
  size_t next = 0;
  for (size_t o = 0; o < owners_.names.size(); ++o) {
    if (!colors[o]) {
      while (taken.contains(next) && taken.size() < kNumSeriesColors) ++next;
      taken.insert(next);
      colors[o] = next++;
    }
    legend_.entries.push_back({clean_text(shown_name(owners_.names[o]), 96), *colors[o]});
  }
  const std::vector<double>& history = snapshot_->history_bytes;
  const double highest =
      std::max(layout_.top, history.empty() ? 0.0 : *std::ranges::max_element(history));
  const Unit unit = memory_unit(highest);
  factor_ = unit.factor;
  unit_ = unit.name;
  picked_.reset();
  hidden_.clear();
  fit_ = true;
}

size_t MemoryBlocks::color_of(size_t index) const {
  const SnapshotAllocation& allocation = snapshot_->allocations[layout_.shown[index]];
  return legend_.entries[owners_.of_site[allocation.site]].color;
}

bool MemoryBlocks::is_hidden(size_t index) const {
  const SnapshotAllocation& allocation = snapshot_->allocations[layout_.shown[index]];
  return hidden_.contains(legend_.entries[owners_.of_site[allocation.site]].name);
}

std::string MemoryBlocks::block_text(size_t index) const {
  const SnapshotAllocation& allocation = snapshot_->allocations[layout_.shown[index]];
  const SnapshotSite& site = snapshot_->sites[allocation.site];
  std::string text = fmt::format("{}, {}\nevents {} to {}", clean_text(shown_name(site.owner), 96),
                                 format_bytes(allocation.bytes), allocation.begin, allocation.end);
  if (allocation.end_us > allocation.begin_us) {
    text += fmt::format(", {} ms", format_number((allocation.end_us - allocation.begin_us) / 1e3));
  }
  if (allocation.begin == 0) text += "; there before the history begins";
  if (allocation.end >= snapshot_->num_events) text += "; never freed";
  if (!site.where.empty()) text += "\n" + clean_lines(site.where, 2048);
  return text;
}

void MemoryBlocks::draw(float height, const UiStyle& style) {
  if (!snapshot_ || empty()) return;
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const ImVec2 figure(width, height);
  draw_legend(legend_, origin, figure, style, true, hidden_);
  const float top = legend_height(legend_, width, height);
  ImGui::SetCursorScreenPos(origin + ImVec2(0, top));
  constexpr ImPlotFlags kFlags = ImPlotFlags_NoLegend | ImPlotFlags_NoTitle | ImPlotFlags_NoFrame |
                                 ImPlotFlags_NoMouseText | ImPlotFlags_NoMenus;
  if (ImPlot::BeginPlot("##blocks", ImVec2(width, std::max(height - top, 60.0f)), kFlags)) {
    draw_plot_area(style);
    ImPlot::EndPlot();
  }
  if (snapshot_->allocations.size() > layout_.shown.size() ||
      snapshot_->num_allocations > snapshot_->allocations.size()) {
    show_text(
        fmt::format("the largest {} of {} allocations; the others are the grey below the line",
                    layout_.shown.size(), snapshot_->num_allocations),
        style.colors().muted_text);
  }
  if (picked_) show_text(block_text(*picked_));
}

void MemoryBlocks::draw_plot_area(const UiStyle& style) {
  const std::vector<double>& history = snapshot_->history_bytes;
  const double highest =
      std::max(layout_.top, history.empty() ? 0.0 : *std::ranges::max_element(history));
  ImPlot::SetupAxis(ImAxis_X1, "event", ImPlotAxisFlags_NoMenus);
  ImPlot::SetupAxis(ImAxis_Y1, with_unit("allocated", unit_).c_str(), ImPlotAxisFlags_NoMenus);
  const ImPlotCond cond = fit_ ? ImPlotCond_Always : ImPlotCond_Once;
  fit_ = false;
  ImPlot::SetupAxisLimits(ImAxis_X1, 0, static_cast<double>(snapshot_->num_events), cond);
  ImPlot::SetupAxisLimits(ImAxis_Y1, 0, highest * factor_ * 1.05, cond);
  ImPlot::SetupAxisZoomConstraints(ImAxis_X1, 4, 1e10);
  ImPlot::SetupAxisZoomConstraints(ImAxis_Y1, std::max(highest * factor_ * 1e-9, 1e-12), 1e18);
  ImPlot::SetupFinish();
  ImPlot::PushPlotClipRect();
  draw_total(style);
  draw_blocks(style);
  if (picked_) draw_block(*picked_, series_color(color_of(*picked_), style.theme), style, true);
  ImPlot::PopPlotClipRect();
  if (!ImPlot::IsPlotHovered()) return;
  const ImPlotPoint mouse = ImPlot::GetPlotMousePos();
  std::optional<size_t> found =
      block_at(layout_, snapshot_->allocations, mouse.x, mouse.y / factor_);
  if (found && is_hidden(*found)) found.reset();
  if (found) show_tooltip(block_text(*found));
  const ImVec2 dragged = ImGui::GetIO().MouseClickedPos[0] - ImGui::GetMousePos();
  const float reach = 0.3f * ImGui::GetFontSize();
  if (ImGui::IsMouseReleased(0) && dragged.x * dragged.x + dragged.y * dragged.y < reach * reach) {
    picked_ = found;
  }
  if (ImGui::IsMouseDoubleClicked(0)) fit_ = true;
}

// What is allocated in all, below the blocks: allocations that are not drawn show as its grey.
void MemoryBlocks::draw_total(const UiStyle& style) const {
  const std::vector<double>& history = snapshot_->history_bytes;
  if (history.size() < 2) return;
  std::vector<double> x, y;
  const double per_entry =
      static_cast<double>(std::max<uint64_t>(snapshot_->num_events, history.size())) /
      static_cast<double>(history.size());
  for (size_t i = 0; i < history.size(); ++i) {
    x.push_back(static_cast<double>(i) * per_entry);
    y.push_back(std::isfinite(history[i]) ? history[i] * factor_ : 0);
  }
  ImPlotSpec area;
  area.FillColor = ImGui::ColorConvertU32ToFloat4(with_alpha(style.colors().muted_text, 0.35f));
  area.LineWeight = 0;
  ImPlot::PlotShaded("##total", x.data(), y.data(), static_cast<int>(x.size()), 0.0, area);
}

void MemoryBlocks::draw_blocks(const UiStyle& style) const {
  for (size_t i = 0; i < layout_.shown.size(); ++i) {
    if (is_hidden(i)) continue;
    draw_block(i, series_color(color_of(i), style.theme), style, false);
  }
}

void MemoryBlocks::draw_block(size_t index, ImU32 color, const UiStyle& style, bool framed) const {
  const ImPlotRect limits = ImPlot::GetPlotLimits();
  const SnapshotAllocation& allocation = snapshot_->allocations[layout_.shown[index]];
  if (allocation.end < limits.X.Min || allocation.begin > limits.X.Max) return;
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const ImU32 border = framed ? style.colors().text : style.colors().background;
  float last_right = -1e9f;
  for (size_t s = layout_.first[index]; s < layout_.first[index + 1]; ++s) {
    const BlockStep& step = layout_.steps[s];
    if (step.to < limits.X.Min || step.from > limits.X.Max) continue;
    const PixelBox box(ImPlot::PlotToPixels(static_cast<double>(step.from), step.foot * factor_),
                       ImPlot::PlotToPixels(static_cast<double>(step.to),
                                            (step.foot + allocation.bytes) * factor_));
    if (box.max.y - box.min.y < 0.3f) return;  // thinner than can be seen: the grey stands for it
    if (box.max.x - last_right < 0.5f) continue;  // no wider than the pixel that was drawn last
    last_right = box.max.x;
    // Half a pixel over its end: steps of one block join without a seam.
    draw->AddRectFilled(box.min, box.max + ImVec2(0.5f, 0), color);
    // Along top and foot only: where a block sinks it goes on.
    if (framed || box.max.y - box.min.y > 4) {
      const float weight = framed ? 2.0f : 1.0f;
      draw->AddLine(box.min, ImVec2(box.max.x, box.min.y), border, weight);
      draw->AddLine(ImVec2(box.min.x, box.max.y), box.max, border, weight);
    }
  }
}

}  // namespace moonshard::viewer
