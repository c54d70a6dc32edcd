// What a step's report says about ranks, memory and communication, as records and scripts show it.
#pragma once

#include "runtime/base/json.h"
#include "runtime/train/step_watch.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {

/// What this rank holds: {parameter_bytes, gradient_bytes, optimizer_bytes, gathered_peak_…}.
Json held_by_rank(const Trainer& trainer, const StepReport& report);

/// {peak_bytes, peak_phase, rest_bytes, breakdown, after_step, phases, timeline}
Json ledger_record(const profile::LedgerReport& ledger);

/// [{operation, count, bytes, work_ms, exposed_ms, overlap_percent}]
Json comm_rows(const std::vector<profile::Span>& spans);

/// {edges, counts, left_out, max_grad_norm}: about 40 bins, evenly spaced in the logarithm between
/// powers of two. Norms that are 0 or not finite are left out, and counted; null without norms.
/// Norms of samples are secret: only for results that make no claim of privacy.
Json norm_histogram(const std::vector<double>& norms, double max_grad_norm);

/// [{operation, count, bytes}]
Json traffic_of(const StepReport& report);

}  // namespace moonshard::train
