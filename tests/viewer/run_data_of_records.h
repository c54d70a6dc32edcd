// A run folder as RunData, by way of runtime/records: for tests of what is computed from it.
#pragma once

#include <filesystem>

#include "runtime/records/reader.h"
#include "viewer/data/run_data.h"

namespace moonshard::viewer {

inline void set_cells(RunBuilder& builder, ValueTable& table, size_t point, const Json& cells) {
  for (const auto& [key, value] : cells.items()) {
    if (value.is_boolean()) builder.set(table, point, key, value.get<bool>());
    if (value.is_number()) builder.set(table, point, key, value.get<double>());
    if (value.is_string())
      builder.set(table, point, key, std::string_view(value.get_ref<const std::string&>()));
  }
}

inline RunData run_data_of_records(const std::filesystem::path& folder) {
  const records::RunFolder loaded = records::load_run_folder(folder);
  RunData run;
  run.path = folder.string();
  run.name = loaded.name;
  run.axes = loaded.axes;
  if (loaded.request.contains("baseline")) {
    run.baseline_axis = loaded.request["baseline"]["axis"];
    run.baseline_value = loaded.request["baseline"]["value"];
  }
  RunBuilder builder(run);
  for (const records::PointRecord& point : loaded.points) {
    const size_t row = builder.add_point({point.id, point.status, point.error});
    set_cells(builder, run.options, row, point.options);
    set_cells(builder, run.metrics, row, point.metrics);
  }
  builder.finish();
  return run;
}

}  // namespace moonshard::viewer
