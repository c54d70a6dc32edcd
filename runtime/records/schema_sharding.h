// A record's parts about ranks and what they send each other (schema.h).
#pragma once

#include "runtime/records/schema_fields.h"

namespace moonshard::records {

/// All collectives of one kind in the watched step.
struct Collective {
  std::string operation;
  double count = NAN, bytes = NAN, work_ms = NAN, exposed_ms = NAN, overlap_percent = NAN;
  bool modelled = false;
};
template <class V>
void fields(V& v, Collective& c) {
  v({"operation", Unit::None,
     "Kind of collective; 'host' before it: between hosts, beside the GPU's work."},
    c.operation);
  v({"count", Unit::Count, "How many there were."}, c.count);
  v({"bytes", Unit::Bytes, "Bytes that this rank handed over or received."}, c.bytes);
  v({"work_ms", Unit::Milliseconds, "From when a collective began to work until it was done."},
    c.work_ms);
  v({"exposed_ms", Unit::Milliseconds, "How long computation waited for it."}, c.exposed_ms);
  v({"overlap_percent", Unit::Percent, "Share of the work that was hidden behind computation."},
    c.overlap_percent);
  v({"modelled", Unit::None, "Its times are modelled from a link, not measured."}, c.modelled);
}

/// What this rank took part in sending in a step.
struct Traffic {
  std::string operation;
  double count = NAN, bytes = NAN;
};
template <class V>
void fields(V& v, Traffic& t) {
  v({"operation", Unit::None, "Kind of collective."}, t.operation);
  v({"count", Unit::Count, "How many there were in a step."}, t.count);
  v({"bytes", Unit::Bytes, "Their size together."}, t.bytes);
}

/// What a rank holds at the end of a step.
struct RankMemory {
  double parameter_bytes = NAN, gradient_bytes = NAN, optimizer_bytes = NAN,
         gathered_peak_bytes = NAN, gathered_peak_units = NAN, in_flight_peak_bytes = NAN;
};
template <class V>
void fields(V& v, RankMemory& r) {
  v({"parameter_bytes", Unit::Bytes, "Memory of this rank's part of the parameters."},
    r.parameter_bytes);
  v({"gradient_bytes", Unit::Bytes, "Memory of this rank's gradients at the end of a step."},
    r.gradient_bytes);
  v({"optimizer_bytes", Unit::Bytes, "Memory of the optimizer's state on this rank."},
    r.optimizer_bytes);
  v({"gathered_peak_bytes", Unit::Bytes,
     "Most memory of parameters that were gathered from other ranks."},
    r.gathered_peak_bytes);
  v({"gathered_peak_units", Unit::Count, "Most units that were gathered at once."},
    r.gathered_peak_units);
  v({"in_flight_peak_bytes", Unit::Bytes, "Most memory of messages under way."},
    r.in_flight_peak_bytes);
}

/// How the model is spread over ranks, as rank 0 sees it.
struct ShardingPart {
  double rank = NAN, world = NAN;
  bool fake = false;
  std::string transport;
  std::vector<std::string> units;
  RankMemory held;
  std::vector<Traffic> traffic;
};
template <class V>
void fields(V& v, ShardingPart& s) {
  v({"rank", Unit::Count, "The rank that wrote the record."}, s.rank);
  v({"world", Unit::Count, "How many ranks there are."}, s.world);
  v({"fake", Unit::None, "The other ranks are only modelled."}, s.fake);
  v({"transport", Unit::None, "What carries the data: gloo, nccl, fake."}, s.transport);
  v({"units", Unit::None, "Names of the FSDP units."}, s.units);
  fields(v, s.held);
  v({"traffic", Unit::None, "What this rank sent or received in a step, by kind."}, s.traffic);
}

/// One rank of a job.
struct RankRow {
  double rank = NAN, peak_memory_bytes = NAN, median_time_ms = NAN, comm_work_ms = NAN,
         comm_exposed_ms = NAN, comm_overlap_percent = NAN;
};
template <class V>
void fields(V& v, RankRow& r) {
  v({"rank", Unit::Count, "One of the processes that share the work, counted from 0."}, r.rank);
  v({"peak_memory_bytes", Unit::Bytes, "Its peak_memory_bytes, as among the metrics."},
    r.peak_memory_bytes);
  v({"median_time_ms", Unit::Milliseconds, "Its median_time_ms."}, r.median_time_ms);
  v({"comm_work_ms", Unit::Milliseconds, "Its comm_work_ms."}, r.comm_work_ms);
  v({"comm_exposed_ms", Unit::Milliseconds, "Its comm_exposed_ms."}, r.comm_exposed_ms);
  v({"comm_overlap_percent", Unit::Percent, "Its comm_overlap_percent."}, r.comm_overlap_percent);
}

}  // namespace moonshard::records
