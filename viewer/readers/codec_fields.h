// The fields of every struct that comes from the reading process, in order, and what must hold of
// them before a panel may index by them. Parts of a record have theirs in records/schema.h.
#pragma once

#include "runtime/records/csv.h"
#include "runtime/records/plot_spec.h"
#include "viewer/data/run_data.h"
#include "viewer/readers/codec.h"
#include "viewer/tracing/memory_snapshot.h"
#include "viewer/tracing/trace.h"
#include "viewer/tracing/trace_path.h"

namespace moonshard::records {

void fields(auto& a, PlotAxis& v) {
  a(v.label, v.unit, v.log_scale, v.categories, v.min, v.max);
}
void fields(auto& a, PlotSeries& v) {
  a(v.name, v.x, v.y, v.labels, v.status, v.texts, v.low, v.high, v.stack, v.color);
}
void fields(auto& a, PlotBand& v) {
  a(v.from, v.to, v.label);
}
void fields(auto& a, PlotReference& v) {
  a(v.text, v.series, v.x, v.y);
}
void fields(auto& a, PlotPanel& v) {
  a(v.kind, v.title, v.x, v.y, v.value, v.horizontal, v.series, v.bands, v.references);
}
void fields(auto& a, PlotSpec& v) {
  a(v.title, v.note, v.width, v.height, v.columns, v.panels);
}
void fields(auto& a, CsvTable& v) {
  a(v.columns, v.rows);
}
template <class T>
void fields(auto& a, Named<T>& v) {
  a(v.name, v.value);
}
void fields(auto& a, Labels& v) {
  a(v.names, v.index);
}

}  // namespace moonshard::records

namespace moonshard::viewer {

void fields(auto& a, Value& v) {
  a(v.kind, v.text, v.number);
}
void fields(auto& a, ValueTable& v) {
  a(v.keys, v.cells);
}
void fields(auto& a, PointHead& v) {
  a(v.id, v.status, v.error);
}
void fields(auto& a, TextPair& v) {
  a(v.key, v.value);
}
void fields(auto& a, SweepProgress& v) {
  a(v.state, v.total, v.done, v.elapsed_s, v.eta_s, v.current, v.updated);
}
void fields(auto& a, RunData& v) {
  a(v.path, v.name, v.created, v.axes, v.baseline_axis, v.baseline_value, v.environment, v.points,
    v.options, v.metrics, v.texts, v.plots, v.tables, v.progress, v.problems);
}
void fields(auto& a, PointDetail& v) {
  fields(a, static_cast<records::Result&>(v));
  a(v.data_lines, v.traces, v.snapshots, v.logs, v.tables);
}
void fields(auto& a, TraceRow& v) {
  a(v.start_us, v.length_us, v.name, v.category);
}
void fields(auto& a, TraceLane& v) {
  a(v.rank, v.process, v.thread, v.gpu, v.file, v.key, v.origin_us, v.rows);
}
void fields(auto& a, TraceCounter& v) {
  a(v.name, v.time_us, v.value);
}
void fields(auto& a, Trace& v) {
  a(v.names, v.categories, v.lanes, v.counters, v.length_us, v.num_events, v.num_skipped,
    v.problems);
}
void fields(auto& a, TracePathPiece& v) {
  a(v.start_us, v.end_us, v.lane, v.kind);
}
void fields(auto& a, TracePathSum& v) {
  a(v.name, v.us);
}
void fields(auto& a, TraceForecast& v) {
  a(v.change, v.note, v.us);
}
void fields(auto& a, TracePath& v) {
  a(v.begin_us, v.end_us, v.lanes, v.pieces, v.kinds, v.phases, v.layers, v.names, v.forecasts,
    v.num_steps);
}
void fields(auto& a, SnapshotSegment& v) {
  a(v.address, v.device, v.stream, v.kind, v.total, v.allocated, v.largest_free, v.num_blocks,
    v.expandable);
}
void fields(auto& a, SnapshotBlock& v) {
  a(v.address, v.size, v.requested, v.state, v.where);
}
void fields(auto& a, SnapshotAction& v) {
  a(v.action, v.count, v.bytes);
}
void fields(auto& a, SnapshotSite& v) {
  a(v.owner, v.where);
}
void fields(auto& a, SnapshotAllocation& v) {
  a(v.begin, v.end, v.site, v.address, v.bytes, v.begin_us, v.end_us);
}
void fields(auto& a, MemorySnapshot& v) {
  a(v.reserved, v.allocated, v.active, v.requested, v.free_in_segments, v.largest_free,
    v.num_segments, v.num_blocks, v.num_events, v.segments, v.largest, v.actions, v.history_bytes,
    v.sites, v.allocations, v.num_allocations, v.problems);
}

/// Throw IoError when indices or lengths do not fit together. What needs no check has none.
void check_decoded(const RunData& run);
void check_decoded(const PointDetail& detail);
void check_decoded(const Trace& trace);
void check_decoded(const TracePath& path);
void check_decoded(const records::PlotSpec& spec);
void check_decoded(const records::CsvTable& table);
void check_decoded(const MemorySnapshot& snapshot);
inline void check_decoded(const std::string&) {}

}  // namespace moonshard::viewer
