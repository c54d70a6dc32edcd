// Reads PyTorch memory snapshots (snapshot.pickle of torch.cuda.memory._dump_snapshot and of
// moonshard's memory_history) into a summary.
#pragma once

#include <filesystem>

#include "viewer/input/control.h"
#include "viewer/tracing/memory_snapshot.h"

namespace moonshard::viewer {

/// Throws IoError when it is no snapshot. Nothing in the pickle is executed.
MemorySnapshot read_snapshot(const std::filesystem::path& path, const ReadControl& control = {});

}  // namespace moonshard::viewer
