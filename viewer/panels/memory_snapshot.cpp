// The memory snapshot panel: a PyTorch memory snapshot of the selected point, or one that was
// opened by itself: its allocations as blocks over time, a summary, tables.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/chart_panel.h"
#include "viewer/panels/memory_blocks.h"
#include "viewer/panels/memory_snapshot_tables.h"
#include "viewer/render/plot_renderer.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr float kPlotHeightEm = 15, kBlocksHeightEm = 20;

struct Line {
  const char *name, *meaning;
  std::string text;
};

class MemorySnapshotPanel final : public Panel {
 public:
  MemorySnapshotPanel() : Panel({"memory_snapshot", "Memory snapshot", DockPlace::Detail}) {}
  const records::PlotSpec* shown_plot() const override {
    return plot_.panels.empty() ? nullptr : &spec_;
  }

  void draw(const PanelContext& context) override {
    const std::optional<ReadRequest> request = find_request(context);
    if (!request) return forget();
    const Loaded<MemorySnapshot> loaded = context.store.file<MemorySnapshot>(*request);
    if (!show_loading(loaded, context.store, *request, context.style)) return forget();
    if (loaded.value != snapshot_) {
      snapshot_ = loaded.value;
      tables_.show(*snapshot_);
      blocks_.show(snapshot_);
      make_plot();
    }
    if (!plot_.panels.empty() && button_at_right("Export")) {
      context.requests.export_plot = ExportRequest{spec_, std::string(name())};
    }
    draw_all(context);
  }

 private:
  void forget() {
    snapshot_.reset();
    plot_ = PreparedPlot();
  }

  // A file that was opened by itself, or one of the selected point.
  std::optional<ReadRequest> find_request(const PanelContext& context) {
    const std::vector<std::string>& opened = context.workspace.snapshot_files;
    std::vector<std::string> names = opened;
    std::optional<SelectedFiles> selected;
    const std::optional<PointRef> point = context.workspace.selected_point();
    const bool has_own =
        point && context.detail(*point).value && !context.detail(*point).value->snapshots.empty();
    if (opened.empty() || has_own) {
      selected = selected_files(
          context, &PointDetail::snapshots, "This point has no memory snapshot",
          "A point on a GPU writes one (snapshot.pickle) with --memory-history, in a script: "
          "memory_history = true; also when memory runs out. Others' snapshots of "
          "torch.cuda.memory._dump_snapshot open with 'moonshard view FILE.pickle'.");
      if (!selected) return std::nullopt;
      names.insert(names.end(), selected->names.begin(), selected->names.end());
    }
    pick_file(names);
    if (std::ranges::find(opened, file_) != opened.end()) {
      const std::filesystem::path path = file_;
      const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
      return ReadRequest{ReadRequest::Kind::Snapshot, folder, {path.filename().string()}};
    }
    return ReadRequest{ReadRequest::Kind::Snapshot,
                       selected->folder,
                       {fmt::format("points/{}/{}", selected->id, file_)}};
  }

  void pick_file(const std::vector<std::string>& files) {
    if (std::ranges::find(files, file_) == files.end()) file_ = files.front();
    if (files.size() < 2) return;
    ImGui::SetNextItemWidth(
        std::min(20 * ImGui::GetFontSize(), ImGui::GetContentRegionAvail().x * 0.6f));
    pick_name("##file", file_, files,
              [&](const std::string& file) { return telling_part(file, files); });
  }

  // Memory by owner, or all of it where the snapshot has no history of allocations.
  void make_plot() {
    spec_ = blocks_spec(*snapshot_, std::filesystem::path(file_).filename().string());
    plot_ = PreparedPlot();
    state_ = PlotState();
    if (!spec_.panels.empty()) {
      plot_ = prepare_plot(spec_);
      return;
    }
    const std::vector<double>& history = snapshot_->history_bytes;
    if (history.size() < 2) return;
    const Unit unit = memory_unit(*std::ranges::max_element(history));
    const double per_entry =
        static_cast<double>(std::max<uint64_t>(snapshot_->num_events, history.size())) /
        static_cast<double>(history.size());
    records::PlotPanel panel;
    panel.kind = records::PlotKind::Lines;
    panel.x.label = "event";
    panel.y = {"allocated", unit.name};
    records::PlotSeries series;
    series.name = "allocated";
    for (size_t i = 0; i < history.size(); ++i) {
      series.x.push_back(static_cast<double>(i) * per_entry);
      series.y.push_back(std::isfinite(history[i]) ? history[i] * unit.factor : 0.0);
    }
    panel.series.push_back(std::move(series));
    spec_.title = "Memory over the events of " + file_;
    spec_.panels.push_back(std::move(panel));
    plot_ = prepare_plot(spec_);
    plot_.title.clear();  // the panel says it
  }

  void draw_summary(const UiStyle& style) const {
    const MemorySnapshot& s = *snapshot_;
    const Line lines[] = {
        {"reserved", "Taken from the device, all segments together.", format_bytes(s.reserved)},
        {"allocated", "Held by tensors.", format_bytes(s.allocated)},
        {"active", "Held by tensors, or freed but still in use by a stream.",
         format_bytes(s.active)},
        {"requested", "What was asked for, before sizes were rounded up.",
         format_bytes(s.requested)},
        {"free inside", "Reserved but not active: room between blocks.",
         fmt::format("{} ({})", format_bytes(s.free_in_segments),
                     format_share(s.free_in_segments, s.reserved))},
        {"largest free", "The largest block that can be handed out without a new segment.",
         format_bytes(s.largest_free)},
        {"fragmentation",
         "Share of the free room that is not in the largest free block: what a large tensor cannot "
         "use.",
         format_share(s.free_in_segments - s.largest_free, s.free_in_segments)},
        {"segments", "Pieces of memory that the allocator took from the device.",
         std::to_string(s.num_segments)},
        {"blocks", "Parts of segments, in use or free.", std::to_string(s.num_blocks)},
        {"events", "What the snapshot remembers of the past.", std::to_string(s.num_events)},
    };
    const ImU32 muted = style.colors().muted_text;
    const float em = ImGui::GetFontSize();
    const int columns = std::max(1, static_cast<int>(ImGui::GetContentRegionAvail().x / (17 * em)));
    if (!ImGui::BeginTable("##summary", std::min(columns, 4))) return;
    for (const Line& line : lines) {
      ImGui::TableNextColumn();
      ImGui::BeginGroup();
      show_text(line.name, muted);
      ImGui::SameLine(7 * em);
      show_text(line.text);
      ImGui::EndGroup();
      explain_item(line.meaning);
    }
    ImGui::EndTable();
    for (const std::string& problem : s.problems) {
      show_wrapped(clean_text(problem, 512), status_color("oom", style.theme));
    }
  }

  void draw_all(const PanelContext& context) {
    ImGui::BeginChild("##snapshot");
    draw_summary(context.style);
    const float em = ImGui::GetFontSize();
    if (!blocks_.empty()) {
      blocks_.draw(std::max(kBlocksHeightEm * em, ImGui::GetContentRegionAvail().y - 6 * em),
                   context.style);
    } else if (!plot_.panels.empty()) {
      const ImVec2 size(ImGui::GetContentRegionAvail().x, kPlotHeightEm * em);
      draw_plot(plot_, state_, size, context.style, true);
    }
    tables_.draw(context.requests);
    ImGui::EndChild();
  }

  std::string file_;
  std::shared_ptr<const MemorySnapshot> snapshot_;
  SnapshotTables tables_;
  MemoryBlocks blocks_;
  records::PlotSpec spec_;
  PreparedPlot plot_;
  PlotState state_;
};

}  // namespace

const MakePanel make_memory_snapshot_panel = make_panel<MemorySnapshotPanel>;

}  // namespace moonshard::viewer
