// How much memory the machine and the control groups around this process leave free. Past it the
// kernel does not refuse memory: it kills a process, this one or a neighbour.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace moonshard::profile {

struct FreeHostMemory {
  int64_t bytes = -1;  ///< -1: unknown; swap and what the kernel gives back from its caches count
  std::string bound;   ///< what leaves no more: "the machine", "the control group /slurm/job_7"
};

/// `root` holds proc and sys; tests give their own. About 50 microseconds.
FreeHostMemory free_host_memory(const std::filesystem::path& root = "/");

}  // namespace moonshard::profile
