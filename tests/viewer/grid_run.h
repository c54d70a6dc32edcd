// Small run folders with figures that are made up: grids like those of the documents, for tests of
// what charts and tables make of many points.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/records/writer.h"

namespace moonshard::viewer {

struct GridPoint {
  Json options;
  double time_ms = 100;
  double memory_bytes = 4e9;
  std::vector<double> samples_ms = {};  ///< empty: three around time_ms
  std::string status = "ok";
};

/// A folder below root with these points, ids p00, p01, ...
inline std::filesystem::path make_grid_run(const std::filesystem::path& root,
                                           const std::string& name,
                                           const std::vector<std::string>& axes,
                                           const std::vector<GridPoint>& points,
                                           const Json& baseline = Json()) {
  records::RunFolderWriter writer = records::RunFolderWriter::create(root, name);
  const auto id = [](size_t i) { return (i < 10 ? "p0" : "p") + std::to_string(i); };
  std::vector<records::PlannedPoint> planned;
  for (size_t i = 0; i < points.size(); ++i) planned.push_back({id(i), points[i].options, ""});
  Json request = Json::object();
  if (!baseline.is_null()) request["baseline"] = baseline;
  writer.write_sweep(name, request, axes, planned);
  for (size_t i = 0; i < points.size(); ++i) {
    const GridPoint& point = points[i];
    Json result{{"schema_version", 1}, {"status", point.status}, {"options", point.options}};
    if (point.status == "ok") {
      const double ms = point.time_ms;
      Json samples =
          point.samples_ms.empty() ? Json{ms * 0.999, ms, ms * 1.001} : Json(point.samples_ms);
      result["metrics"] = {{"median_time_ms", ms},
                           {"peak_memory_bytes", point.memory_bytes},
                           {"tokens_per_s", 1e6 / ms}};
      result["time"] = {{"samples_ms", samples}};
    }
    writer.write_result(id(i), result);
  }
  return writer.path();
}

/// Two ways to shard, three accumulations, four batch sizes; the two largest ran out of memory.
inline std::filesystem::path make_sharding_grid(const std::filesystem::path& root) {
  std::vector<GridPoint> points;
  for (const int accum : {1, 2, 4}) {
    for (const char* sharding : {"zero2", "zero3"}) {
      for (const int batch : {2, 4, 8, 16}) {
        const bool zero3 = std::string(sharding) == "zero3";
        GridPoint point;
        point.options = {{"mode", "none"},         {"sharding", sharding}, {"grad_accum", accum},
                         {"batch_size", batch},    {"world", "fake:2"},    {"link", "nvlink"},
                         {"model", "qwen1.5-1.8b"}};
        point.time_ms = (60 + 42.0 * batch * accum) * (zero3 ? 1.01 : 1.0);
        point.memory_bytes = (18.0 + 6.5 * batch + accum - (zero3 ? 2 : 0)) * (1 << 30);
        if (batch == 16 && accum > 1) point.status = "oom";
        points.push_back(point);
      }
    }
  }
  return make_grid_run(root, "zero_compare", {"grad_accum", "sharding", "batch_size"}, points,
                       {{"axis", "sharding"}, {"value", "zero2"}});
}

/// Engines at some lengths. Of its many axes two vary; the number of layers follows from nothing.
inline std::filesystem::path make_engine_grid(const std::filesystem::path& root,
                                              const std::vector<int>& lengths = {1024, 2048, 4096},
                                              const std::string& name = "engines") {
  std::vector<GridPoint> points;
  for (const int length : lengths) {
    for (const char* mode : {"none", "ghost", "flash"}) {
      GridPoint point;
      point.options = {{"model", "llama"},   {"task", "lm"}, {"dtype", "float32"},
                       {"num_layers", 32},   {"mode", mode}, {"seq_length", length},
                       {"profile", "phases"}};
      const double factor = std::string(mode) == "none" ? 1.0 : 1.6;
      point.time_ms = 0.2 * length * factor;
      point.memory_bytes = 3e10 + 1e6 * length * factor;
      points.push_back(point);
    }
  }
  return make_grid_run(root, name,
                       {"model", "task", "dtype", "num_layers", "mode", "seq_length", "profile"},
                       points, {{"axis", "mode"}, {"value", "none"}});
}

}  // namespace moonshard::viewer
