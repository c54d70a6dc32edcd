// How long the trace panel takes: building the index, searching, and building one frame (from
// NewFrame to Render, without drawing) at several zooms, for one, two and four times as many
// events, with few and with many rows, on a usual and on a huge window. Prints a table.
//
//   bench_trace [events]
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <imgui.h>

#include "tests/viewer/trace_builder.h"
#include "viewer/backend.h"
#include "viewer/panels/trace_view.h"

namespace moonshard::viewer {
namespace {

constexpr int kFrames = 60;

// Time this thread computed: other programs on the machine do not count.
double milliseconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

struct Case {
  const char* name;
  double share;        // of the trace that is shown
  const char* search;  // empty: none
};
constexpr Case kCases[] = {{"all", 1, ""},
                           {"all, search", 1, "mm"},
                           {"1/10", 0.1, ""},
                           {"1/1000", 0.001, ""},
                           {"single spans", 1e-6, ""}};

// Frames while the window moves, as when panning: none may rest on what the last one did.
std::vector<double> frame_times(HeadlessBackend& backend, const UiContext& context,
                                const IndexedTrace& shown, const Case& one, TraceViewState& state) {
  std::snprintf(state.search, sizeof state.search, "%s", one.search);
  std::vector<double> times;
  const double length = shown.trace->length_us * one.share;
  for (int frame = -2; frame < kFrames; ++frame) {
    const double start = (shown.trace->length_us - length) * (0.3 + 0.004 * frame);
    state.window = {start, start + length};
    const double ms = milliseconds([&] {
      backend.begin_frame(0);
      ImGui::SetNextWindowPos(ImVec2(0, 0));
      ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
      ImGui::Begin("##bench", nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove);
      draw_trace(*shown.trace, shown.index, state, context.style());
      ImGui::End();
      ImGui::Render();
    });
    // The first two are really drawn, so that glyphs and buffers are there.
    frame < 0 ? backend.end_frame() : times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times;
}

void run(uint64_t num_events) {
  const UiContext context(Theme::Dark);
  const std::unique_ptr<HeadlessBackend> backend = make_headless_backend();
  fmt::print("{:>9}  {:>4}  {:<9}  {:<12}  {:>9}  {:>8}  {:>8}  {:>7}\n", "events", "rows",
             "window", "shown", "median ms", "worst ms", "looked", "boxes");
  for (const auto& [depth, factor] :
       {std::pair<size_t, uint64_t>{5, 1}, {5, 2}, {5, 4}, {40, 1}, {40, 4}}) {
    const auto trace = std::make_shared<const Trace>(make_big_trace(num_events * factor, depth));
    IndexedTrace shown{trace, {}};
    const double index_ms = milliseconds([&] { shown.index = build_trace_index(*trace); });
    const double search_ms = milliseconds([&] { TraceSearch(*trace, shown.index, "a"); });
    fmt::print("{:>9}  {:>4}  index {:.0f} ms, search {:.1f} ms\n", trace->num_events,
               shown.index.rows.size(), index_ms, search_ms);
    for (const auto& [width, height] : {std::pair(1440, 900), std::pair(3840, 2160)}) {
      backend->resize(width, height, 1.0f);
      TraceViewState state;
      for (const Case& one : kCases) {
        const std::vector<double> times = frame_times(*backend, context, shown, one, state);
        fmt::print("{:>9}  {:>4}  {:<9}  {:<12}  {:>9.2f}  {:>8.2f}  {:>8}  {:>7}\n",
                   trace->num_events, shown.index.rows.size(), fmt::format("{}x{}", width, height),
                   one.name, times[times.size() / 2], times.back(), state.num_looked,
                   state.num_boxes);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace moonshard::viewer

int main(int argc, char** argv) {
  moonshard::viewer::run(argc > 1 ? std::stoull(argv[1]) : 1'000'000);
  return 0;
}
