// Before an experiment starts: what cannot fit into memory is refused with a plan's advice, instead
// of an allocation that fails minutes later, or the kernel's kill. Never what might have fitted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "runtime/experiment/experiment_options.h"
#include "runtime/records/schema.h"

namespace moonshard::plan {

struct Refusal {
  std::string text;   ///< what is needed, what there is, what to do
  double needed = 0;  ///< bytes
  double free = 0;    ///< bytes that there are
  std::vector<records::OwnedBytes> owners;
  std::vector<records::Saving> savings;
};

/// Memory that this process may still take on a device: a GPU's whole memory, or what the machine
/// and its control groups leave free. 0: unknown, or memory_limit_mb bounds it.
double memory_for(const experiment::ExperimentOptions& options, c10::Device device);

/// Resolved options of one rank of `ranks`. A refusal where parameters, gradients and optimizer
/// state alone are beyond the memory, which is exact, or where the predicted peak is at least half
/// as much again; of engines whose memory depends on timings or on a script only by the former.
/// With check_memory = false never. `already`: bytes of it that are in memory, and not free.
/// Savings begin with the largest batch that is predicted to fit.
std::optional<Refusal> refusal_of(const experiment::ExperimentOptions& options, c10::Device device,
                                  int ranks, double already = 0);

/// What would save memory in so many bytes, by predicted owners: the largest batch that fits, then
/// other options.
std::vector<records::Saving> savings_within(const experiment::ExperimentOptions& options,
                                            double memory, int ranks);

/// "\n    -> checkpointing = block saves 12.1 GiB: …" of the first five; empty without any.
std::string advice_lines(const std::vector<records::Saving>& savings);

/// "12.1 GiB", "3.4 MiB".
std::string size_text(double bytes);

}  // namespace moonshard::plan
