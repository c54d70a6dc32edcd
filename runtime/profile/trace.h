// Chrome traces of a few steps through LibTorch's Kineto: operators, kernels, memory, and the
// phases by their names. The rank is inside; Perfetto, chrome://tracing and HTA open the files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace moonshard::profile {

struct TraceInfo {
  int rank = 0, world = 1;
  std::string transport;  ///< "nccl", "gloo", …
  std::string what;       ///< for the reader, e.g. "llama3-tiny ghost"
  /// What an update without noise and clipping reads and writes; 0: not known.
  int64_t update_bytes = 0;
};

/// Records from its construction on, on this thread and the work that it starts. Kineto has one
/// recorder per process: throws UsageError while another trace records. Begins and ends outside of
/// a step (StepScope).
class Trace {
 public:
  explicit Trace(c10::Device device);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  /// Stops and writes, compressed when the name ends in .gz. Throws IoError.
  void save(const std::filesystem::path& path, const TraceInfo& info);

 private:
  void stop_listening();

  bool running_ = true;
  std::shared_ptr<c10::ThreadLocalDebugInfo> set_aside_;  ///< previous listeners of the allocators
};

/// Writes a trace of Kineto's anew with rank and subject in it, compressed when the name ends in
/// .gz, whole or not at all. Any size in some megabytes of memory. Throws IoError.
void add_about_trace(const std::filesystem::path& raw, const std::filesystem::path& path,
                     const TraceInfo& info);

/// Whether a trace records in this process.
bool trace_is_recording();
/// Whether it records this thread. Kineto then owns the slot that allocators report to: other
/// listeners are disabled.
bool trace_holds_this_thread();

/// "trace.rank0.json.gz", or without .gz in a build without zlib.
std::string trace_file_name(int rank);

}  // namespace moonshard::profile
