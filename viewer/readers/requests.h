// Requests of the window to the reading process, and both ends of the protocol.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/data/point_detail.h"
#include "viewer/data/run_data.h"
#include "viewer/input/control.h"
#include "viewer/readers/codec.h"

namespace moonshard::viewer {

struct ReadRequest {
  enum class Kind : uint8_t { Runs, Details, Trace, Snapshot, Log, Table, Plot };
  Kind kind = Kind::Runs;
  std::string folder;              ///< run folder; empty for Runs
  std::vector<std::string> names;  ///< Runs: folders; Details: ids; else files below the folder
};

template <class A>
void fields(A& a, ReadRequest& v) {
  a(v.kind, v.folder, v.names);
}

/// One folder's part of the answer to Runs; error is set, and run empty, when it could not be read.
struct RunAnswer {
  uint32_t index = 0;  ///< into the request's names
  std::string error;
  RunData run;
};

/// One point's part of the answer to Details.
struct DetailAnswer {
  uint32_t index = 0;
  std::string error;
  PointDetail detail;
};

/// The reading process' end; a WorkerFunction.
void answer_read_request(std::string_view request, const ReadControl& control,
                         const std::function<void(std::string_view part)>& answer);

using ProgressFunction = std::function<void(double share)>;

/// The window's end. All throw IoError for what cannot be read and Cancelled when stop is set.
void read_runs(const std::vector<std::string>& folders, const ProgressFunction& progress,
               const std::atomic<bool>& stop, const std::function<void(RunAnswer)>& on_run);
void read_details(const std::string& folder, const std::vector<std::string>& ids,
                  const ProgressFunction& progress, const std::atomic<bool>& stop,
                  const std::function<void(DetailAnswer)>& on_detail);

/// Trace, MemorySnapshot, std::string (Log), records::CsvTable (Table) or records::PlotSpec (Plot),
/// as the kind says.
template <class T>
T read_file(const ReadRequest& request, const ProgressFunction& progress,
            const std::atomic<bool>& stop);

/// A file of the run folder as a path, or an IoError when it leads out of it or is not there.
std::string path_inside(const std::string& folder, const std::string& name);

}  // namespace moonshard::viewer
