// A small run folder in a temporary place, and a small plot spec, for the viewer's tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/records/plot_spec.h"
#include "runtime/records/writer.h"

namespace moonshard::viewer {

/// A folder that is gone when the test ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "moonshard_view_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// Bars of two series over two categories; the last point of the second ran out of memory.
inline records::PlotSpec sample_plot() {
  records::PlotSpec spec;
  spec.title = "Step time";
  spec.width = 480;
  spec.height = 320;
  records::PlotPanel panel;
  panel.x = {"sequence length", "tokens", false, {"64", "128"}};
  panel.y = {"mean step time", "ms", false, {}};
  panel.series.push_back({"none", {0, 1}, {10.0, 20.0}, {}, {}});
  panel.series.push_back({"ghost", {0, 1}, {15.0, std::nullopt}, {}, {"ok", "oom"}});
  spec.panels.push_back(panel);
  return spec;
}

/// Four points: ok, ok, oom and planned; one plot.
inline std::filesystem::path make_sample_run(const std::filesystem::path& root) {
  records::RunFolderWriter writer = records::RunFolderWriter::create(root, "sample");
  const auto options = [](const char* mode, int length) {
    return Json{{"mode", mode}, {"seq_length", length}, {"noise_multiplier", 0.8}};
  };
  writer.write_sweep("sample", Json::object(), {"mode", "seq_length"},
                     {{"p0", options("none", 64), ""},
                      {"p1", options("none", 1024), ""},
                      {"p2", options("ghost", 64), ""},
                      {"p3", options("ghost", 1024), ""}});
  const auto result = [&](const char* mode, int length, double time_ms, int64_t bytes) {
    return Json{{"schema_version", 1},
                {"status", "ok"},
                {"options", options(mode, length)},
                {"metrics", {{"avg_time_ms", time_ms}, {"peak_memory_bytes", bytes}}}};
  };
  writer.write_result("p0", result("none", 64, 12.5, 100 << 20));
  writer.write_result("p1", result("none", 1024, 9.75, 300 << 20));
  writer.write_result("p2", Json{{"schema_version", 1},
                                 {"status", "oom"},
                                 {"error", "out of memory: asked for 2 GiB"},
                                 {"options", options("ghost", 64)}});
  writer.write_file("visualizations/time.plot.json", to_text(to_json(sample_plot())));
  return writer.path();
}

}  // namespace moonshard::viewer
