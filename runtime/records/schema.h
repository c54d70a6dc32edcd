// What a point's result.json holds: one struct per part, and for each a list of its fields with
// key, unit and meaning. The writer, the viewer's stream reader and codec, the CSV tables, the Lua
// documentation and docs/records.md are all made from these lists, so that they cannot disagree.
//
// A visitor is called as v({key, unit, doc}, member) for every field, in the order of the file.
// Numbers are doubles: whole numbers (Unit::Count, Unit::Bytes) are exact up to 2^53. What a record
// lacks is NaN, an empty text or an empty list, and is left out of the file.
#pragma once

#include "runtime/base/json.h"
#include "runtime/records/schema_memory.h"
#include "runtime/records/schema_privacy.h"
#include "runtime/records/schema_sharding.h"

namespace moonshard::records {

/// The figures of the run table and of index.csv.
struct Metrics {
  double avg_time_ms = NAN, median_time_ms = NAN, min_time_ms = NAN, p95_time_ms = NAN,
         iqr_time_ms = NAN, peak_memory_bytes = NAN, peak_memory_mb = NAN, peak_memory_gb = NAN,
         avg_memory_bytes = NAN, peak_reserved_bytes = NAN, rss_bytes = NAN, tokens_per_s = NAN,
         samples_per_s = NAN, final_loss = NAN, num_parameters = NAN, parameter_bytes = NAN,
         optimizer_bytes = NAN, clip_fraction = NAN, engine_kept_bytes = NAN, dropped_samples = NAN,
         data_share_percent = NAN, cpu_percent = NAN, gpu_utilization_percent = NAN,
         flops_per_step = NAN, mfu_percent = NAN, comm_bytes = NAN, comm_work_ms = NAN,
         comm_exposed_ms = NAN, comm_overlap_percent = NAN, comm_share_percent = NAN,
         profiler_overhead_percent = NAN, end_to_end_s = NAN, epsilon = NAN;
};
template <class V>
void fields(V& v, Metrics& m) {
  v({"avg_time_ms", Unit::Milliseconds, "Mean time of a measured step; warm-up is not in it."},
    m.avg_time_ms);
  v({"median_time_ms", Unit::Milliseconds, "Median time of a measured step: half took less."},
    m.median_time_ms);
  v({"min_time_ms", Unit::Milliseconds, "Time of the fastest measured step."}, m.min_time_ms);
  v({"p95_time_ms", Unit::Milliseconds, "95 of 100 measured steps took at most this long."},
    m.p95_time_ms);
  v({"iqr_time_ms", Unit::Milliseconds,
     "Spread of the middle half of the measured steps: third quartile minus first."},
    m.iqr_time_ms);
  v({"peak_memory_bytes", Unit::Bytes,
     "Most memory that tensors held at once in the measured steps."},
    m.peak_memory_bytes);
  v({"peak_memory_mb", Unit::None, "peak_memory_bytes in MiB."}, m.peak_memory_mb);
  v({"peak_memory_gb", Unit::None, "peak_memory_bytes in GiB."}, m.peak_memory_gb);
  v({"avg_memory_bytes", Unit::Bytes,
     "Memory of tensors averaged over the time of the watched steps."},
    m.avg_memory_bytes);
  v({"peak_reserved_bytes", Unit::Bytes,
     "Most memory that the allocator had taken from the device: tensors and what it caches."},
    m.peak_reserved_bytes);
  v({"rss_bytes", Unit::Bytes, "Resident set: host memory of the process."}, m.rss_bytes);
  v({"tokens_per_s", Unit::PerSecond, "Tokens of all ranks per second, over all measured steps."},
    m.tokens_per_s);
  v({"samples_per_s", Unit::PerSecond, "Samples of all ranks per second, over all measured steps."},
    m.samples_per_s);
  v({"final_loss", Unit::None, "Mean loss of the last step.", Missing::Null}, m.final_loss);
  v({"num_parameters", Unit::Count, "Numbers that the model is made of."}, m.num_parameters);
  v({"parameter_bytes", Unit::Bytes, "Memory of the model's parameters, all ranks together."},
    m.parameter_bytes);
  v({"optimizer_bytes", Unit::Bytes, "Memory of the optimizer's state on this rank."},
    m.optimizer_bytes);
  v({"clip_fraction", Unit::Fraction,
     "Share of samples whose gradient norm was above the clipping bound."},
    m.clip_fraction);
  v({"engine_kept_bytes", Unit::Bytes,
     "Most that the clipping engine kept from layer to layer in a step."},
    m.engine_kept_bytes);
  v({"dropped_samples", Unit::Count,
     "Samples without a finite gradient: they contributed nothing."},
    m.dropped_samples);
  v({"data_share_percent", Unit::Percent, "Share of the step that went into getting its batch."},
    m.data_share_percent);
  v({"cpu_percent", Unit::Percent, "CPU time of the process over wall time; 200 is two cores."},
    m.cpu_percent);
  v({"gpu_utilization_percent", Unit::Percent,
     "Mean of the driver's samples of the GPU's use; says little of short runs."},
    m.gpu_utilization_percent);
  v({"flops_per_step", Unit::None,
     "Floating-point operations that plain training of this rank's tokens needs."},
    m.flops_per_step);
  v({"mfu_percent", Unit::Percent,
     "Model FLOP utilisation: flops_per_step in the median step against the GPU's data-sheet "
     "peak."},
    m.mfu_percent);
  v({"comm_bytes", Unit::Bytes, "Bytes of all collectives of the watched step."}, m.comm_bytes);
  v({"comm_work_ms", Unit::Milliseconds,
     "Time that collectives worked in the watched step, hidden or not."},
    m.comm_work_ms);
  v({"comm_exposed_ms", Unit::Milliseconds,
     "Time that computation waited for collectives in the watched step."},
    m.comm_exposed_ms);
  v({"comm_overlap_percent", Unit::Percent,
     "Share of the collectives' work that was hidden behind computation."},
    m.comm_overlap_percent);
  v({"comm_share_percent", Unit::Percent, "Exposed communication over the time of the step."},
    m.comm_share_percent);
  v({"profiler_overhead_percent", Unit::Percent,
     "How much longer the watched step took than the median of the measured ones."},
    m.profiler_overhead_percent);
  v({"end_to_end_s", Unit::Seconds,
     "Everything from start to end, construction of the model included."},
    m.end_to_end_s);
  v({"epsilon", Unit::None,
     "The privacy loss that the result claims: the smaller, the more private. A claim, not a "
     "proof."},
    m.epsilon);
}

/// Times of the measured steps.
struct TimePart {
  Statistics step_ms;
  std::vector<Named<Statistics>> phases_ms;
  std::vector<std::string> phase_order;
  std::vector<double> warmup_ms, samples_ms;
};
template <class V>
void fields(V& v, TimePart& t) {
  v({"step_ms", Unit::Milliseconds, "Times of the measured steps."}, t.step_ms);
  v({"phases_ms", Unit::Milliseconds, "Times of each phase of the measured steps."}, t.phases_ms);
  v({"phase_order", Unit::None, "Phases in the order of the step."}, t.phase_order);
  v({"warmup_ms", Unit::Milliseconds, "Time of each warm-up step.", Missing::Empty}, t.warmup_ms);
  v({"samples_ms", Unit::Milliseconds, "Time of each measured step.", Missing::Empty},
    t.samples_ms);
}

/// Where the time of finding per-sample norms went, in the watched step.
struct NormTimes {
  double local = NAN, stacking = NAN, reduce = NAN, final = NAN;
};
template <class V>
void fields(V& v, NormTimes& n) {
  v({"local", Unit::Milliseconds, "Part of finding the norms: the work in each layer."}, n.local);
  v({"stacking", Unit::Milliseconds,
     "Part of finding the norms: adding layers up for each sample."},
    n.stacking);
  v({"reduce", Unit::Milliseconds, "Part of finding the norms: their sum over ranks."}, n.reduce);
  v({"final", Unit::Milliseconds, "Part of finding the norms: square roots of the sums."}, n.final);
}

struct LayerTime {
  std::string layer;
  double norm_ms = NAN;
  std::string kind;
  double parameters = NAN, in_features = NAN, out_features = NAN, tokens = NAN;
};
template <class V>
void fields(V& v, LayerTime& l) {
  v({"layer", Unit::None, "A part of the model with parameters of its own."}, l.layer);
  v({"norm_ms", Unit::Milliseconds,
     "Time that finding the norms of this layer took, in the watched step."},
    l.norm_ms);
  v({"kind", Unit::None, "Kind of layer: which rule finds its norms."}, l.kind);
  v({"parameters", Unit::Count, "Numbers that are trained in it; of a block, in all its layers."},
    l.parameters);
  v({"in_features", Unit::Count, "Width of its input; of an embedding, its ids."}, l.in_features);
  v({"out_features", Unit::Count, "Width of its output."}, l.out_features);
  v({"tokens", Unit::Count, "Positions of a micro-batch that it sees: samples x length."},
    l.tokens);
}

struct StepRow {
  double step = NAN;
  bool warmup = false;
  double loss = NAN, lr = NAN, time_ms = NAN, clip_fraction = NAN;
  double epsilon = NAN, grad_norm = NAN, norm_p10 = NAN, norm_p50 = NAN, norm_p90 = NAN;
  double eval_loss = NAN, perplexity = NAN, accuracy = NAN, macro_f1 = NAN;
  std::vector<Named<double>> phases_ms;
};
template <class V>
void fields(V& v, StepRow& s) {
  v({"step", Unit::Count, "Number of the step, from 1; the warm-up counts."}, s.step);
  v({"warmup", Unit::None, "The step was warm-up and is in no figure."}, s.warmup);
  v({"loss", Unit::None, "Mean loss over the samples of the step.", Missing::Null}, s.loss);
  v({"lr", Unit::None, "Learning rate of the step."}, s.lr);
  v({"time_ms", Unit::Milliseconds, "Time of this step: the sum of its phases."}, s.time_ms);
  v({"clip_fraction", Unit::Fraction,
     "Share of samples whose gradient norm was above the clipping bound."},
    s.clip_fraction);
  v({"epsilon", Unit::None, "Spent up to this step, an upper bound; absent without a claim."},
    s.epsilon);
  v({"grad_norm", Unit::None,
     "Norm of the mean gradient before clip_global_norm (plain training)."},
    s.grad_norm);
  v({"norm_p10", Unit::None, "A tenth of the samples' gradient norms are below."}, s.norm_p10);
  v({"norm_p50", Unit::None, "Median of the samples' gradient norms."}, s.norm_p50);
  v({"norm_p90", Unit::None, "Nine tenths of the samples' gradient norms are below."}, s.norm_p90);
  v({"eval_loss", Unit::None, "Mean loss of the evaluation after this step."}, s.eval_loss);
  v({"perplexity", Unit::None, "exp of that evaluation's loss per token (task lm)."}, s.perplexity);
  v({"accuracy", Unit::Fraction, "Share of its samples that were classified right."}, s.accuracy);
  v({"macro_f1", Unit::Fraction, "Mean of its classes' F1 scores."}, s.macro_f1);
  v({"phases_ms", Unit::Milliseconds, "Time of each phase of the step."}, s.phases_ms);
}

/// What else the machine did: figures of a busy one are doubtful, also for who reads them later.
struct LoadPart {
  double cores = NAN, load_before = NAN, load_after = NAN, gpu_percent_before = NAN,
         gpu_processes = NAN, other_cpu_percent = NAN;
};
template <class V>
void fields(V& v, LoadPart& l) {
  v({"cores", Unit::Count, "Processor cores that this process may use."}, l.cores);
  v({"load_before", Unit::None,
     "Load average of the last minute before the experiment: processes that wanted a core."},
    l.load_before);
  v({"load_after", Unit::None, "The same at its end: the experiment itself is in it."},
    l.load_after);
  v({"gpu_percent_before", Unit::Percent, "Use of the GPU before this process used it."},
    l.gpu_percent_before);
  v({"gpu_processes", Unit::Count, "Processes on the GPU before this one used it."},
    l.gpu_processes);
  v({"other_cpu_percent", Unit::Percent,
     "CPU time of all other processes over wall time in the measured steps; 100 is one core. Other "
     "ranks of the same job count."},
    l.other_cpu_percent);
}

/// What a change of options would save when memory ran out.
struct Saving {
  std::string change;
  double bytes = NAN;
  std::string reason;
};
template <class V>
void fields(V& v, Saving& s) {
  v({"change", Unit::None, "Options to change."}, s.change);
  v({"bytes", Unit::Bytes, "Memory that it saves, of the step's peak as it is predicted."},
    s.bytes);
  v({"reason", Unit::None, "Where that comes from."}, s.reason);
}

/// A whole result.json.
struct Result {
  double schema_version = NAN;
  std::string id, status, created, error, phase;
  double bytes_asked = NAN, bytes_free = NAN, attempts = NAN;
  std::vector<Saving> savings;
  std::string log_tail;
  Json options;
  std::string modelled;
  double seed = NAN;
  Metrics metrics;
  TimePart time;
  std::vector<MemoryStage> memory_stages;
  MemoryPart memory;
  NormTimes norms_ms;
  std::vector<LayerTime> layers;
  std::vector<Collective> comm;
  std::vector<NormSum> norm_sum;
  std::vector<StepRow> steps;
  PrivacyPart privacy;
  Json data;
  ShardingPart sharding;
  std::vector<RankRow> ranks;
  LoadPart load;
  std::string memory_history, why_no_memory_history, digest;
};
template <class V>
void fields(V& v, Result& r) {
  v({"schema_version", Unit::Count, "Version of the file's layout."}, r.schema_version);
  v({"id", Unit::None, "Name of the point's folder: a hash of its options."}, r.id);
  v({"status", Unit::None,
     "What became of the point: planned, running, ok, oom (out of memory), failed, timeout, "
     "skipped, unreadable."},
    r.status);
  v({"created", Unit::None, "When it was written, by the writer's clock."}, r.created);
  v({"error", Unit::None, "Why the point has no result."}, r.error);
  v({"phase", Unit::None, "The part of the step, or of the start, in which memory ran out."},
    r.phase);
  v({"bytes_asked", Unit::Bytes, "What was asked for when memory ran out."}, r.bytes_asked);
  v({"bytes_free", Unit::Bytes, "What was free when memory ran out."}, r.bytes_free);
  v({"savings", Unit::None, "What other options would save, the most first."}, r.savings);
  v({"attempts", Unit::Count, "How often the point was started."}, r.attempts);
  v({"log_tail", Unit::None, "The last lines of a failed point's log."}, r.log_tail);
  v({"options", Unit::None, "Effective options, each as ms.options() describes it."}, r.options);
  v({"modelled", Unit::None, "Which figures are modelled and not measured, and from what."},
    r.modelled);
  v({"seed", Unit::Count,
     "Seed of weights, data and reproducible noise: the option's, or the one that was drawn where "
     "it was -1."},
    r.seed);
  v({"metrics", Unit::None, "The figures of the run table and of index.csv."}, r.metrics);
  v({"time", Unit::None, "Times of the measured steps."}, r.time);
  v({"memory_stages", Unit::None, "Memory at moments of the experiment."}, r.memory_stages);
  v({"memory", Unit::None, "Memory of the watched step by owner."}, r.memory);
  v({"norms_ms", Unit::None, "Where the time of finding norms went."}, r.norms_ms);
  v({"layers", Unit::None, "Norm times layer by layer (profile = layers)."}, r.layers);
  v({"comm", Unit::None, "Collectives of the watched step, by kind."}, r.comm);
  v({"norm_sum", Unit::None, "Squared norms before and after their sum over ranks, by rank."},
    r.norm_sum);
  v({"steps", Unit::None, "Every step."}, r.steps);
  v({"privacy", Unit::None, "What the result claims about privacy."}, r.privacy);
  v({"data", Unit::None, "What was read: documents, tokens, labels, what was passed over."},
    r.data);
  v({"sharding", Unit::None, "How the model is spread over ranks."}, r.sharding);
  v({"ranks", Unit::None, "Each rank's figures."}, r.ranks);
  v({"load", Unit::None, "What else the machine did."}, r.load);
  v({"memory_history", Unit::None, "File of LibTorch's memory snapshot beside the record."},
    r.memory_history);
  v({"why_no_memory_history", Unit::None, "Why there is no snapshot though one was asked for."},
    r.why_no_memory_history);
  v({"digest", Unit::None,
     "SHA-256 of all that stands before it, by the writer; moonshard doctor and --resume check "
     "it."},
    r.digest);
}

/// One line of the schema: "steps[].loss" with unit and meaning.
struct FieldInfo {
  std::string path, key;
  Unit unit;
  const char* doc;
};

/// Every field of a result, parts before their members.
const std::vector<FieldInfo>& result_fields();
/// The meaning of a key, wherever in the record it stands first; empty when no field has it.
std::string_view meaning_of(std::string_view key);
const char* unit_name(Unit unit);

}  // namespace moonshard::records
