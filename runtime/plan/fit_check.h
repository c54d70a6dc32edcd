// Before an experiment starts: what cannot fit into memory is refused with a plan's advice, instead
// of an allocation that fails minutes later, or the kernel's kill; what may not fit starts with a
// warning.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "runtime/comm/world.h"
#include "runtime/experiment/experiment_options.h"
#include "runtime/records/schema.h"

namespace moonshard::plan {

/// What every refusal says behind the model's name, and nobody else: errors are told by it, also
/// those of other ranks and of records.
inline constexpr const char* kCannotFit = " cannot fit into memory: expected at most ";

struct Refusal {
  std::string text;   ///< what is needed, what there is, what to do
  double needed = 0;  ///< bytes
  double free = 0;    ///< bytes that there are
  std::vector<records::OwnedBytes> owners;
  std::vector<records::Saving> savings;  ///< predicted with the change, the largest first
};

/// The memory that one rank may fill.
struct Room {
  c10::Device device = c10::kCPU;
  int ranks = 1;      ///< of the job
  int sharers = 1;    ///< of them on this host, this one included: on a CPU each has a part
  double memory = 0;  ///< bytes on the device, those that it has filled included; 0: unknown
  double host = -1;   ///< bytes on a GPU's host, for offload; -1: unknown
};

/// A GPU's whole memory, or this rank's part of what the machine and its control groups leave free;
/// memory 0 where memory_limit_mb bounds it. `already`: bytes that this rank has in memory, and
/// that are not free. Ranks of one job must call it together: they agree on what is free.
Room room_for(const experiment::ExperimentOptions& options, c10::Device device, comm::World& world,
              double already = 0);

struct FitCheck {
  std::optional<Refusal> refusal;
  std::string warning;  ///< of what starts, and may not fit; else empty
};

/// Resolved options. Refused is what cannot fit even if the prediction is too large by as much as
/// predictions ever were: parameters, optimizer state and data count in full, as they are exact.
/// Engines that decide by timings, and a script's, count with their smallest ways. With
/// check_memory = false everything is good.
FitCheck check_fit(const experiment::ExperimentOptions& options, const Room& room);

/// The same for this rank's room; a warning is printed, once for all ranks.
std::optional<Refusal> refusal_or_warning(const experiment::ExperimentOptions& options,
                                          c10::Device device, comm::World& world,
                                          double already = 0);

/// What would save memory in this room, by predictions: the largest batch that fits, and other
/// options; the largest saving first.
std::vector<records::Saving> savings_within(const experiment::ExperimentOptions& options,
                                            const Room& room);

/// "\n    -> checkpointing = block saves 12.1 GiB: …" for each; empty without any.
std::string advice_lines(const std::vector<records::Saving>& savings);

/// "12.1 GiB", "3.4 MiB".
std::string size_text(double bytes);

}  // namespace moonshard::plan
