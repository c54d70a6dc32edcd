// Requests of the window to the reading process, and both ends of the protocol.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/input/control.h"
#include "viewer/data/run_data.h"
#include "viewer/readers/codec.h"

namespace moonshard::viewer {

struct ReadRequest {
  enum class Kind : uint8_t { Runs, Details, Trace, Snapshot, Log, Table, Plot, Path, Program };
  Kind kind = Kind::Runs;
  std::string folder;  ///< run folder; empty for Runs
  /// Runs: folders; Details: ids; Program: words of the command line, which no reading process
  /// sees; else files below the folder.
  std::vector<std::string> names;
};

void fields(auto& a, ReadRequest& v) {
  a(v.kind, v.folder, v.names);
}

/// One folder's part of the answer to Runs, one point's part of that to Details; error is set, and
/// value empty, when it could not be read.
template <class T>
struct ReadAnswer {
  uint32_t index = 0;  ///< into the request's names
  std::string error;
  T value;
};
using RunAnswer = ReadAnswer<RunData>;
using DetailAnswer = ReadAnswer<PointDetail>;

/// The reading process' end; a WorkerFunction.
void answer_read_request(std::string_view request, const ReadControl& control,
                         const std::function<void(std::string_view part)>& answer);

using ProgressFunction = std::function<void(double share)>;
using StopFlag = std::atomic<bool>;

/// The window's end. All throw IoError for what cannot be read and Cancelled when stop is set.
void read_runs(const std::vector<std::string>& folders, const ProgressFunction& progress,
               const StopFlag& stop, const std::function<void(RunAnswer)>& on_run);
void read_details(const std::string& folder, const std::vector<std::string>& ids,
                  const ProgressFunction& progress, const StopFlag& stop,
                  const std::function<void(DetailAnswer)>& on_detail);

/// Trace, TracePath (Path), MemorySnapshot, std::string (Log), records::CsvTable (Table) or
/// records::PlotSpec (Plot), as the kind says.
template <class T>
T read_file(const ReadRequest& request, const ProgressFunction& progress, const StopFlag& stop);

/// Runs a reading; what it threw as text, "cancelled" when it was stopped, else empty.
template <class Read>
std::string error_of(const Read& read) {
  try {
    read();
    return "";
  } catch (const Cancelled&) {
    return "cancelled";
  } catch (const std::exception& problem) {
    return problem.what();
  }
}

}  // namespace moonshard::viewer
