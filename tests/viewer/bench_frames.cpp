// How long the viewer takes on this machine with many runs: opening them, and building one frame
// (everything up to ImGui's draw lists, without drawing) while a user scrolls, filters, selects and
// looks at charts; for one, two and four thousand points, in one folder and in as many folders.
//   build/bin/bench_frames [points]
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include "tests/viewer/sample_run.h"
#include "viewer/application.h"
#include "viewer/backend.h"
#include "viewer/readers/limited_process.h"
#include "viewer/readers/requests.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

// A result as large as a real one: about 90 options, 35 metrics, and a memory timeline that the
// table does not need.
Json big_result(int index) {
  Json options, metrics;
  for (int i = 0; i < 88; ++i)
    options["option_" + std::to_string(i)] = i % 3 ? Json(i * 0.5) : Json("value");
  static constexpr const char* kModes[] = {"none", "ghost", "flash", "flash_bookkeeping"};
  options["mode"] = kModes[index % 4];
  options["seq_length"] = 64 << (index / 4 % 6);
  options["batch_size"] = 1 + index / 24;
  for (int i = 0; i < 30; ++i) metrics["metric_" + std::to_string(i)] = index * 1.25 + i;
  metrics["median_time_ms"] = 10.0 + index % 97;
  metrics["peak_memory_bytes"] = 1e9 + 1e6 * index;
  metrics["tokens_per_s"] = 1e5 / (1 + index % 89);
  Json line = Json::array();
  for (int i = 0; i < 400; ++i) line.push_back(1000000000 + 12345 * i + index);
  Json owners;
  for (int i = 0; i < 9; ++i) owners["owner_" + std::to_string(i)] = line;
  return Json{{"schema_version", 1},
              {"status", index % 50 == 49 ? "oom" : "ok"},
              {"options", options},
              {"metrics", metrics},
              {"memory", {{"timeline", {{"ms", line}, {"total", line}, {"owners", owners}}}}}};
}

// Plain files instead of the careful writer: only the reading is measured.
uint64_t write_folder(const fs::path& folder, int first, int count) {
  Json points = Json::array();
  uint64_t bytes = 0;
  for (int i = first; i < first + count; ++i) {
    const std::string id = fmt::format("p{:05}", i), text = to_text(big_result(i));
    points.push_back(Json{{"id", id}, {"options", {{"mode", "none"}}}});
    write_text(folder / "points" / id / "result.json", text);
    bytes += text.size();
  }
  const Json sweep{{"schema_version", 1},
                   {"name", folder.filename().string()},
                   {"axes", {"mode", "seq_length", "batch_size"}},
                   {"points", points}};
  write_text(folder / "sweep.json", to_text(sweep));
  return bytes;
}

double wall_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double thread_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

double resident_mib() {
  std::ifstream status("/proc/self/statm");
  long total = 0, resident = 0;
  status >> total >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

struct Action {
  const char* name;
  std::function<void(Application&, int frame)> act;
};

void measure(const std::vector<fs::path>& folders, const char* what, size_t points,
             uint64_t file_bytes) {
  const double memory_before = resident_mib();
  ApplicationOptions options;
  options.folders = folders;
  Application app(options);
  const std::unique_ptr<HeadlessBackend> backend = make_headless_backend();
  backend->resize(1600, 1000, 1.0f);
  app.set_density(1.0f);
  const double start = wall_ms();
  app.document().load_now();
  const double open_ms = wall_ms() - start;
  const double memory_mib = resident_mib() - memory_before;
  fmt::print("{:>6} points in {:<13} open {:6.0f} ms, holds {:5.1f} MiB of {:5.1f} MiB of files\n",
             points, what, open_ms, memory_mib, static_cast<double>(file_bytes) / (1 << 20));
  static const char* const kFilters[] = {
      "", "g", "gh", "ghost", "ghost and metric_3 > 500", "mode = flash*", "status = oom"};
  const std::vector<Action> actions = {
      {"idle", [](Application&, int) {}},
      {"scroll",
       [](Application&, int frame) {
         ImGui::GetIO().AddMousePosEvent(300, 300);
         ImGui::GetIO().AddMouseWheelEvent(0, frame % 40 < 20 ? -5.0f : 5.0f);
       }},
      {"filter", [](Application& a, int frame) { a.workspace().set_filter(kFilters[frame % 7]); }},
      {"select", [](Application& a, int) { a.workspace().select_step(1); }},
      {"baseline", [](Application& a, int frame) {
         a.workspace().set_baseline(
             {Baseline::Kind::Axis, "", "", "mode", frame % 2 ? "none" : "ghost"});
       }}};
  for (const char* chart : {"Comparison", "Trade-off", "Scaling"}) {
    for (const Action& action : actions) {
      std::vector<double> times;
      app.workspace().set_filter("");
      for (int frame = -6; frame < 60; ++frame) {
        if (frame == -3) ImGui::SetWindowFocus(chart);
        const bool input = std::string_view(action.name) == "scroll";  // goes in before the frame
        if (frame >= 0 && input) action.act(app, frame);
        backend->begin_frame(0);
        const double before = thread_ms();
        if (frame >= 0 && !input) action.act(app, frame);
        app.draw_frame();
        ImGui::Render();
        if (frame >= 0) times.push_back(thread_ms() - before);
        if (frame < 0) backend->end_frame();
      }
      std::sort(times.begin(), times.end());
      fmt::print("       {:<11} {:<9} frame median {:6.2f} ms, worst {:6.2f} ms\n", chart,
                 action.name, times[times.size() / 2], times.back());
    }
  }
}

}  // namespace
}  // namespace moonshard::viewer

int main(int argc, char** argv) {
  using namespace moonshard::viewer;
  start_reading_service(answer_read_request);
  const int base = argc > 1 ? std::atoi(argv[1]) : 1000;
  for (const int factor : {1, 2, 4}) {
    const int points = base * factor;
    const TemporaryFolder root;
    const fs::path one = root.path() / "one";
    const uint64_t bytes = write_folder(one, 0, points);
    measure({one}, "one folder", static_cast<size_t>(points), bytes);
    std::vector<fs::path> many;
    uint64_t many_bytes = 0;
    for (int i = 0; i < points; ++i) {
      many.push_back(root.path() / fmt::format("run_{:05}", i));
      many_bytes += write_folder(many.back(), i, 1);
    }
    measure(many, "as many folders", static_cast<size_t>(points), many_bytes);
  }
}
