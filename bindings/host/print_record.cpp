#include "bindings/host/print_record.h"

#include "runtime/records/schema_json.h"

namespace moonshard::host {
namespace {

constexpr double kMiB = 1048576.0;

void print_head(const records::Result& record) {
  experiment::ExperimentOptions options;
  experiment::experiment_schema().assign_all(&options, record.options);
  const bool is_mixed = options.dtype != options.param_dtype;
  fmt::print(
      "\n{} {}, batch {}, {} tokens, {} on {}\n", options.model, options.mode, options.batch_size,
      options.seq_length,
      is_mixed ? options.dtype + " (computes in " + options.param_dtype + ")" : options.dtype,
      options.device);
  if (records::is_missing(record.sharding)) return;
  fmt::print("  rank {} of {}{}, {} {}, over {}\n", record.sharding.rank, record.sharding.world,
             record.sharding.fake ? " (the others are modelled)" : "", options.parallel,
             options.parallel == "fsdp" ? options.sharding : "", record.sharding.transport);
}

void print_time(const records::Result& record) {
  const records::Statistics& time = record.time.step_ms;
  fmt::print("  step      median {:.2f} ms, min {:.2f}, p95 {:.2f}, IQR {:.2f} over {} steps\n",
             time.median, time.min, time.p95, time.iqr, time.count);
  for (const auto& [phase, summary] : record.time.phases_ms)
    fmt::print("    {:<16} {:8.2f} ms\n", phase, summary.median);
  const records::NormTimes& norms = record.norms_ms;
  if (!records::is_missing(norms))
    fmt::print("  norms     stacking {:.2f} ms, local {:.2f}, reduce {:.2f}, final {:.2f}\n",
               norms.stacking, norms.local, norms.reduce, norms.final);
}

void print_memory(const records::Result& record) {
  fmt::print("  memory    peak {:.1f} MiB\n", record.metrics.peak_memory_mb);
  if (records::is_missing(record.memory)) return;
  fmt::print("    of the detailed step, in phase {}:\n", record.memory.peak_phase);
  for (const records::OwnedBytes& row : record.memory.breakdown)
    fmt::print("    {:<20} {:10.2f} MiB\n", row.owner, row.bytes / kMiB);
}

void print_speed(const records::Metrics& metrics) {
  fmt::print("  speed     {:.0f} tokens/s, {:.1f} samples/s", metrics.tokens_per_s,
             metrics.samples_per_s);
  if (!std::isnan(metrics.mfu_percent))
    fmt::print(", {:.1f} % of the device's peak", metrics.mfu_percent);
  if (!std::isnan(metrics.gpu_utilization_percent))
    fmt::print(", GPU busy {:.0f} %", metrics.gpu_utilization_percent);
  fmt::print(", CPU {:.0f} %, data {:.1f} %\n", metrics.cpu_percent,
             std::isnan(metrics.data_share_percent) ? 0 : metrics.data_share_percent);
  if (!std::isnan(metrics.profiler_overhead_percent))
    fmt::print("  profiler  the detailed step took {:+.1f} % against the median\n",
               metrics.profiler_overhead_percent);
  fmt::print("  loss      {:.4f}\n", metrics.final_loss);
}

void print_privacy(const records::PrivacyPart& privacy) {
  if (std::isnan(privacy.epsilon)) {
    fmt::print("  privacy   not private: no epsilon: {}\n", privacy.why_no_epsilon);
    return;
  }
  fmt::print(
      "  privacy   epsilon {:.4f} at delta {:g} by {}: {} steps, sampling rate {:.4g}, noise "
      "{:.4f} ({})\n",
      privacy.epsilon, privacy.delta, privacy.accountant, privacy.steps, privacy.sampling_rate,
      privacy.noise_multiplier, privacy.noise == "secure" ? "secret" : "repeatable from the seed");
}

}  // namespace

void print_record(const records::Result& record) {
  print_head(record);
  print_time(record);
  print_memory(record);
  for (const records::Collective& row : record.comm)
    fmt::print(
        "  comm      {} {} times, {:.1f} MiB, work {:.2f} ms, exposed {:.2f}, overlap {:.0f} %\n",
        row.operation, row.count, row.bytes / kMiB, row.work_ms, row.exposed_ms,
        row.overlap_percent);
  print_speed(record.metrics);
  print_privacy(record.privacy);
}

}  // namespace moonshard::host
