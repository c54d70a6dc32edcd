// The fields of every struct that comes from the reading process, in order, and what must hold of
// them before a panel may index by them.
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
void fields(A& a, Statistics& v) {
  a(v.count, v.mean, v.median, v.min, v.max, v.p95, v.iqr);
}
template <class A>
void fields(A& a, PhaseTime& v) {
  a(v.name, v.ms);
}
template <class A>
void fields(A& a, OwnedBytes& v) {
  a(v.owner, v.bytes);
}
template <class A>
void fields(A& a, MemoryStage& v) {
  a(v.stage, v.rank, v.allocated, v.max_allocated, v.reserved, v.max_reserved, v.rss);
}
template <class A>
void fields(A& a, MemoryTimeline::Owner& v) {
  a(v.name, v.bytes);
}
template <class A>
void fields(A& a, MemoryTimeline& v) {
  a(v.ms, v.total, v.phases, v.phase, v.owners);
}
template <class A>
void fields(A& a, LayerTime& v) {
  a(v.layer, v.kind, v.norm_ms);
}
template <class A>
void fields(A& a, Collective& v) {
  a(v.operation, v.count, v.bytes, v.work_ms, v.exposed_ms, v.overlap_percent);
}
template <class A>
void fields(A& a, RankSummary& v) {
  a(v.rank, v.peak_memory_bytes, v.median_time_ms, v.comm_work_ms, v.comm_exposed_ms,
    v.comm_overlap_percent);
}
template <class A>
void fields(A& a, StepRow& v) {
  a(v.step, v.warmup, v.loss, v.lr, v.time_ms, v.clip_fraction, v.epsilon);
}
template <class A>
void fields(A& a, PrivacyPhase& v) {
  a(v.q, v.sigma, v.steps);
}
template <class A>
void fields(A& a, PrivacyClaim& v) {
  a(v.present, v.private_engine, v.epsilon, v.delta, v.sampling_rate, v.noise_multiplier, v.steps,
    v.history, v.sampler, v.accountant, v.noise, v.why_no_epsilon, v.max_grad_norm, v.norm_edges,
    v.norm_counts);
}
template <class A>
void fields(A& a, PointDetail& v) {
  a(v.phases, v.step_ms, v.samples_ms, v.warmup_ms, v.stages, v.peak_bytes, v.rest_bytes,
    v.peak_phase, v.breakdown, v.after_step, v.timeline, v.norms, v.layers, v.comm, v.ranks,
    v.steps, v.privacy, v.traces, v.snapshots, v.logs, v.tables);
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
