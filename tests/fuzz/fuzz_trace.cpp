// A trace, plain or gzipped. Rows are sorted and never overlap; a critical path has no holes.
#include "runtime/tracing/critical_path.h"
#include "runtime/tracing/trace_reader.h"
#include "tests/fuzz/fuzz_support.h"
#include "viewer/tracing/trace.h"

using namespace moonshard;
using namespace moonshard::viewer;

namespace {

constexpr uint64_t kMaxTextBytes = 1 << 20;  // bombs end early
constexpr const char* kName = "trace.rank1.json";

void check(const tracing::TraceData& trace) {
  const tracing::HostLabels labels = tracing::label_hosts(trace);
  for (const tracing::StepWindow& step : tracing::find_steps(trace)) {
    const tracing::CriticalPath path =
        tracing::critical_path(trace, labels, tracing::build_graph(trace, labels, step));
    double at = path.begin_us;
    for (const tracing::PathSegment& segment : path.segments) {
      if (segment.start_us != at || !(segment.end_us >= at)) std::abort();
      if (segment.name != tracing::kNone && segment.name >= trace.names.size()) std::abort();
      at = segment.end_us;
    }
  }
}

void check(const Trace& trace) {
  for (const TraceLane& lane : trace.lanes) {
    for (const TraceRow& row : lane.rows) {
      for (size_t i = 0; i < row.size(); ++i) {
        if (row.name[i] >= trace.names.size()) std::abort();
        if (row.category[i] >= trace.categories.size()) std::abort();
        if (!(row.start_us[i] >= 0) || !(row.length_us[i] >= 0)) std::abort();
        if (i > 0 &&
            row.start_us[i - 1] + static_cast<double>(row.length_us[i - 1]) > row.start_us[i]) {
          std::abort();
        }
      }
    }
  }
  for (const TraceCounter& counter : trace.counters) {
    if (counter.time_us.size() != counter.value.size()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = as_text(data, size);
  tracing::TraceReadLimits limits;
  TraceLimits view_limits;
  limits.max_text_bytes = view_limits.max_text_bytes = kMaxTextBytes;
  if (wants_file(bytes)) {
    const std::filesystem::path path = write_input(kName, bytes);
    refuse_or_read([&] { check(tracing::read_events(path, {}, limits)); });
    refuse_or_read([&] { check(read_trace({path}, {}, view_limits)); });
  }
  refuse_or_read([&] { check(tracing::read_events(OpenFile(bytes, kName), {}, limits)); });
  return refuse_or_read([&] { check(read_trace(OpenFile(bytes, kName), {}, view_limits)); });
}
