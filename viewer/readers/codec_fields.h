// The fields of every struct that comes from the reading process, in order, and what must hold of
// them before a panel may index by them. Parts of a record have theirs in records/schema.h.
#pragma once

#include "runtime/records/csv.h"
#include "runtime/records/plot_spec.h"
#include "viewer/data/point_detail.h"
#include "viewer/data/run_data.h"
#include "viewer/readers/codec.h"
#include "viewer/tracing/memory_snapshot.h"
#include "viewer/tracing/trace.h"

namespace moonshard::records {

template <class A>
void fields(A& a, PlotAxis& v) {
  a(v.label, v.unit, v.log_scale, v.categories, v.min, v.max);
}
template <class A>
void fields(A& a, PlotSeries& v) {
  a(v.name, v.x, v.y, v.labels, v.status, v.texts, v.low, v.high, v.stack, v.color);
}
template <class A>
void fields(A& a, PlotBand& v) {
  a(v.from, v.to, v.label);
}
template <class A>
void fields(A& a, PlotReference& v) {
  a(v.text, v.series, v.x, v.y);
}
template <class A>
void fields(A& a, PlotPanel& v) {
  a(v.kind, v.title, v.x, v.y, v.value, v.horizontal, v.series, v.bands, v.references);
}
template <class A>
void fields(A& a, PlotSpec& v) {
  a(v.title, v.note, v.width, v.height, v.columns, v.panels);
}
template <class A>
void fields(A& a, CsvTable& v) {
  a(v.columns, v.rows);
}
template <class A, class T>
void fields(A& a, Named<T>& v) {
  a(v.name, v.value);
}
template <class A>
void fields(A& a, Labels& v) {
  a(v.names, v.index);
}

}  // namespace moonshard::records

namespace moonshard::viewer {

template <class A>
void fields(A& a, Value& v) {
  a(v.kind, v.text, v.number);
}
template <class A>
void fields(A& a, ValueTable& v) {
  a(v.keys, v.cells);
}
template <class A>
void fields(A& a, PointHead& v) {
  a(v.id, v.status, v.error);
}
template <class A>
void fields(A& a, TextPair& v) {
  a(v.key, v.value);
}
template <class A>
void fields(A& a, SweepProgress& v) {
  a(v.state, v.total, v.done, v.failed, v.elapsed_s, v.eta_s, v.current, v.updated);
}
template <class A>
void fields(A& a, RunData& v) {
  a(v.path, v.name, v.created, v.axes, v.baseline_axis, v.baseline_value, v.environment, v.points,
    v.options, v.metrics, v.texts, v.plots, v.tables, v.progress, v.problems);
}
template <class A>
void fields(A& a, PointDetail& v) {
  fields(a, static_cast<records::Result&>(v));
  a(v.data_lines, v.traces, v.snapshots, v.logs, v.tables);
}
template <class A>
void fields(A& a, TraceRow& v) {
  a(v.start_us, v.length_us, v.name, v.category);
}
template <class A>
void fields(A& a, TraceLane& v) {
  a(v.rank, v.process, v.thread, v.gpu, v.rows);
}
template <class A>
void fields(A& a, TraceCounter& v) {
  a(v.name, v.time_us, v.value);
}
template <class A>
void fields(A& a, Trace& v) {
  a(v.file, v.names, v.categories, v.lanes, v.counters, v.length_us, v.num_events, v.num_skipped,
    v.problems);
}
template <class A>
void fields(A& a, SnapshotSegment& v) {
  a(v.address, v.device, v.stream, v.kind, v.total, v.allocated, v.active, v.requested,
    v.largest_free, v.num_blocks, v.expandable);
}
template <class A>
void fields(A& a, SnapshotBlock& v) {
  a(v.address, v.size, v.requested, v.state, v.where);
}
template <class A>
void fields(A& a, SnapshotAction& v) {
  a(v.action, v.count, v.bytes);
}
template <class A>
void fields(A& a, MemorySnapshot& v) {
  a(v.reserved, v.allocated, v.active, v.requested, v.free_in_segments, v.largest_free,
    v.num_segments, v.num_blocks, v.num_events, v.segments, v.largest, v.actions, v.history_bytes,
    v.problems);
}

/// Throw IoError when indices or lengths do not fit together. What needs no check has none.
void check_decoded(const RunData& run);
void check_decoded(const PointDetail& detail);
void check_decoded(const Trace& trace);
void check_decoded(const records::PlotSpec& spec);
void check_decoded(const records::CsvTable& table);
inline void check_decoded(const MemorySnapshot&) {}
inline void check_decoded(const std::string&) {}

}  // namespace moonshard::viewer
