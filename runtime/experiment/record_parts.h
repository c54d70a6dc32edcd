// Parts of a record (records/schema.h) made from what steps report: memory by owner, timelines,
// collectives, norms, what a rank holds.
#pragma once

#include <string>
#include <vector>

#include "runtime/profile/ledger.h"
#include "runtime/profile/timeline.h"
#include "runtime/records/schema.h"
#include "runtime/train/trainer.h"

namespace moonshard::experiment {

// What a step's report says about ranks, memory and communication, as parts of a record.

/// The figures of a training curve; `with_norms`: quantiles of the samples' gradient norms, too,
/// which are secret where a result claims privacy.
records::StepRow step_row(const train::StepReport& report, bool with_norms);

/// What this rank holds at the end of a step.
records::RankMemory held_by_rank(const train::Trainer& trainer, const train::StepReport& report);

/// The same with what is known of the job it belongs to.
records::ShardingPart sharding_part(const train::Trainer& trainer, const train::StepReport& report);

records::MemoryPart memory_part(const profile::LedgerReport& ledger);

/// `modelled`: their times come from a link's speed (world = fake:N).
std::vector<records::Collective> comm_rows(const std::vector<profile::Span>& spans,
                                           bool modelled = false);

/// Who held what at the moment when a step ran out of memory, from its unfinished ledger.
records::MemoryPart memory_at_end(const profile::LedgerReport& ledger, const std::string& phase);

/// Timelines of steps in a row as one, each with at most its share of kTimelineSamples.
records::MemoryTimeline joined_timelines(std::vector<records::MemoryTimeline> steps);

/// About 40 bins, evenly spaced in the logarithm between powers of two. Norms that are 0 or not
/// finite are left out, and counted; missing without norms. Norms of samples are secret: only for
/// results that make no claim of privacy.
records::NormHistogram norm_histogram(const std::vector<double>& norms, double max_grad_norm);

std::vector<records::Traffic> traffic_of(const train::StepReport& report);

}  // namespace moonshard::experiment
