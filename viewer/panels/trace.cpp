// The trace panel: spans of the selected point's ranks over time.
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/panel.h"
#include "viewer/panels/trace_view.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

class TracePanel final : public Panel {
 public:
  TracePanel() : Panel({"trace", "Trace", DockPlace::Charts}) {}
  std::vector<std::pair<std::string, std::string>> shortcuts() const override {
    return {{"W, S, mouse wheel", "zoom in and out of the trace"},
            {"A, D, drag", "move through time"},
            {"Shift+wheel", "scroll the lanes"},
            {"click, double click", "select a span, zoom to it"},
            {"Shift+drag, right drag", "sums of a range of time"},
            {"F, Ctrl+F", "find a name"},
            {"N, P, F3, Shift+F3", "next and previous hit"},
            {"0, Home", "show the whole trace"},
            {"Esc", "clear range, selection, search"}};
  }

  void draw(const PanelContext& context) override {
    const std::optional<SelectedFiles> selected =
        selected_files(context, &PointDetail::traces, "This point has no trace",
                       "Record one with --profile trace, in a script: profile = \"trace\"; or pick "
                       "another point.");
    if (!selected) return;
    const auto& [folder, id, names] = *selected;
    std::vector<std::string> files;
    for (const std::string& file : names) files.push_back("points/" + id + "/" + file);
    if (files.size() > 1) choose_file(names, files);
    const ReadRequest request{ReadRequest::Kind::Trace, folder, files};
    const Loaded<IndexedTrace> loaded = context.store.file<IndexedTrace>(request);
    if (!show_loading(loaded, context.store, request, context.style)) return;
    take(loaded.value, folder, files);
    take_path(context, folder, files.front());
    draw_shown(context);
  }

 private:
  // All ranks together, or one of the files.
  void choose_file(const std::vector<std::string>& names, std::vector<std::string>& files) {
    if (std::ranges::find(names, file_) == names.end()) file_.clear();
    ImGui::SetNextItemWidth(11 * ImGui::GetFontSize());
    const std::string all = fmt::format("all {} files", names.size());
    std::vector<std::string> choices = names;
    choices.insert(choices.begin(), "");
    pick_name("##file", file_, choices, [&](const std::string& name) {
      return name.empty() ? all : telling_part(name, names);
    });
    ImGui::SameLine();
    const auto now = std::ranges::find(names, file_);
    if (now != names.end()) files = {files[static_cast<size_t>(now - names.begin())]};
  }

  // The window of time stays when the same files are read again.
  void take(const std::shared_ptr<const IndexedTrace>& trace, const std::string& folder,
            const std::vector<std::string>& files) {
    if (trace == shown_) return;
    shown_ = trace;
    TraceViewState fresh;
    if (folder == folder_ && files == files_) {
      fresh.window = state_.window;
      fresh.range = state_.range;
    }
    std::copy(std::begin(state_.search), std::end(state_.search), fresh.search);
    fresh.show_pane = state_.show_pane;
    fresh.show_exposed = state_.show_exposed;
    fresh.show_path = state_.show_path;
    fresh.pane_share = state_.pane_share;
    state_ = std::move(fresh);
    folder_ = folder;
    files_ = files;
  }

  // Of the first file: that of the first rank, or the chosen one.
  void take_path(const PanelContext& context, const std::string& folder, const std::string& file) {
    std::shared_ptr<const TracePath> path;
    state_.path_error.clear();
    if (state_.show_path) {
      const Loaded<TracePath> loaded =
          context.store.file<TracePath>({ReadRequest::Kind::Path, folder, {file}});
      path = loaded.value;
      state_.path_error = loaded.error;
    }
    if (path == state_.path) return;
    state_.path = path;
    state_.cache.strips_stale = true;  // lanes have room for it
  }

  void draw_shown(const PanelContext& context) {
    const Trace& trace = *shown_->trace;
    const std::string problem = trace.problems.empty() ? "" : clean_text(trace.problems.front());
    if (trace.num_events == 0 && trace.counters.empty()) {
      show_empty_state("The trace is empty", problem, context.style);
      return;
    }
    if (!problem.empty()) show_wrapped(problem, status_color("oom", context.style.theme));
    draw_trace(trace, shown_->index, state_, context.style);
    if (!state_.copied.empty()) context.requests.notice = "copied " + state_.copied;
    state_.copied.clear();
  }

  std::shared_ptr<const IndexedTrace> shown_;
  TraceViewState state_;
  std::string folder_, file_;
  std::vector<std::string> files_;
};

}  // namespace

const MakePanel make_trace_panel = make_panel<TracePanel>;

}  // namespace moonshard::viewer
