// A trace, plain or gzipped. Rows are sorted and never overlap; a critical path has no holes.
#include "runtime/tracing/critical_path.h"
#include "runtime/tracing/trace_reader.h"
#include "tests/fuzz/fuzz_support.h"
#include "viewer/tracing/trace.h"

using namespace moonshard;
using namespace moonshard::viewer;

static void find_path(const std::filesystem::path& file) {
  tracing::TraceReadLimits limits;
  limits.max_text_bytes = 1 << 20;
  const tracing::TraceData trace = tracing::read_events(file, {}, limits);
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

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::filesystem::path path = write_input("trace.rank1.json", as_text(data, size));
  refuse_or_read([&] { find_path(path); });
  return refuse_or_read([&] {
    TraceLimits limits;
    limits.max_text_bytes = 1 << 20;  // bombs end early
    const Trace trace = read_trace({path}, {}, limits);
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
  });
}
