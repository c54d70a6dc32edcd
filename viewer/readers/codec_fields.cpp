#include "viewer/readers/codec_fields.h"

#include <cmath>

namespace moonshard::viewer {
namespace {

void expect(bool good, const char* what) {
  if (!good)
    throw IoError(std::string("reading process: its answer does not fit together: ") + what);
}

void check_table(const RunData& run, const ValueTable& table) {
  expect(table.cells.size() == run.points.size() * table.keys.size(), "cells of the run table");
  for (const Value& value : table.cells) {
    expect(value.kind <= Value::Kind::Text, "kind of a value");
    expect(value.kind != Value::Kind::Text || value.text < run.texts.size(), "text of a value");
  }
}

}  // namespace

void check_decoded(const RunData& run) {
  check_table(run, run.options);
  check_table(run, run.metrics);
}

void check_decoded(const PointDetail& detail) {
  const MemoryTimeline& line = detail.memory.timeline;
  const size_t size = line.ms.size();
  expect(line.total.size() == size && line.phase.index.size() == size,
         "lists of the memory timeline");
  for (const uint32_t phase : line.phase.index)
    expect(phase < line.phase.names.size(), "phase of a moment");
  for (const auto& owner : line.owners) expect(owner.value.size() == size, "bytes of an owner");
  const records::NormHistogram& norms = detail.privacy.norms_histogram;
  expect(norms.edges.empty() == norms.counts.empty() &&
             (norms.edges.empty() || norms.edges.size() == norms.counts.size() + 1),
         "histogram of norms");
}

void check_decoded(const Trace& trace) {
  for (const TraceLane& lane : trace.lanes) {
    for (const TraceRow& row : lane.rows) {
      const size_t size = row.start_us.size();
      expect(row.length_us.size() == size && row.name.size() == size && row.category.size() == size,
             "columns of a trace");
      for (size_t i = 0; i < size; ++i) {
        expect(row.name[i] < trace.names.size() && row.category[i] < trace.categories.size(),
               "name of a span");
      }
    }
  }
  for (const TraceCounter& counter : trace.counters) {
    expect(counter.time_us.size() == counter.value.size(), "values of a counter");
  }
}

void check_decoded(const TracePath& path) {
  for (const TracePathPiece& piece : path.pieces)
    expect(piece.lane < path.lanes.size() && piece.kind < 5 && std::isfinite(piece.start_us) &&
               std::isfinite(piece.end_us),
           "piece of a critical path");
}

void check_decoded(const MemorySnapshot& snapshot) {
  for (const SnapshotAllocation& allocation : snapshot.allocations) {
    expect(allocation.site < snapshot.sites.size() && allocation.begin < allocation.end,
           "allocation of a snapshot");
  }
}

void check_decoded(const records::PlotSpec& spec) {
  for (const records::PlotPanel& panel : spec.panels) {
    expect(panel.kind >= records::PlotKind::Bars && panel.kind <= records::PlotKind::HeatMap,
           "kind of a plot");
    for (const records::PlotSeries& s : panel.series) {
      const size_t size = s.y.size();
      const auto fits = [size](const auto& list) { return list.empty() || list.size() == size; };
      expect(s.x.size() == size && fits(s.labels) && fits(s.status) && fits(s.texts) &&
                 fits(s.low) && fits(s.high),
             "lists of a series");
    }
  }
}

void check_decoded(const records::CsvTable& table) {
  for (const auto& row : table.rows) {
    expect(row.size() == table.columns.size(), "cells of a table's row");
  }
}

}  // namespace moonshard::viewer
