// Small traces as Kineto writes them, span by span, for tests of their analysis.
#pragma once

#include <fstream>
#include <string>

#include <fmt/format.h>

#include "runtime/tracing/critical_path.h"
#include "runtime/tracing/trace_reader.h"
#include "runtime/tracing/what_if.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::tracing {

class TraceText {
 public:
  TraceText& span(const std::string& category, const std::string& name, const std::string& process,
                  int thread, double start, double length, const std::string& arguments = "") {
    text_ += fmt::format(
        "{}{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":\"{}\",\"pid\":\"{}\",\"tid\":{},\"ts\":{},"
        "\"dur\":{},\"args\":{{{}}}}}",
        text_.empty() ? "" : ",\n", category, name, process, thread, start, length, arguments);
    return *this;
  }
  /// On the host's main thread (1), or another.
  TraceText& range(const std::string& name, double start, double length, int thread = 1) {
    return span("user_annotation", name, "host", thread, start, length);
  }
  TraceText& op(const std::string& name, double start, double length, int thread = 1) {
    return span("cpu_op", name, "host", thread, start, length);
  }
  TraceText& call(const std::string& name, double start, double length, int correlation,
                  int thread = 1) {
    return span("cuda_runtime", name, "host", thread, start, length,
                fmt::format("\"correlation\":{}", correlation));
  }
  TraceText& kernel(const std::string& name, double start, double length, int correlation,
                    int stream = 7, const std::string& category = "kernel") {
    return span(category, name, "gpu", stream, start, length,
                fmt::format("\"correlation\":{},\"stream\":{}", correlation, stream));
  }
  TraceText& raw(const std::string& event) {
    text_ += (text_.empty() ? "" : ",\n") + event;
    return *this;
  }
  TraceText& head(const std::string& fields) {
    head_ += fields;
    return *this;
  }

  TraceData read() const {
    const TemporaryFolder folder;
    const std::filesystem::path file = folder.path() / "trace.json";
    std::ofstream(file) << "{" << head_ << "\"traceEvents\":[" << text_ << "]}";
    return read_events(file);
  }

 private:
  std::string text_, head_;
};

inline CriticalPath path_of(const TraceData& trace, size_t step = 0) {
  const HostLabels labels = label_hosts(trace);
  return critical_path(trace, labels, build_graph(trace, labels, find_steps(trace).at(step)));
}

inline WhatIfResult forecast(const TraceData& trace, const WhatIf& changes) {
  return what_if(trace, find_steps(trace).front(), changes);
}

inline WhatIfResult forecast(const TraceData& trace, RuleSubject subject, const std::string& glob,
                             double factor) {
  WhatIf changes;
  changes.rules.push_back({subject, glob, factor});
  return forecast(trace, changes);
}

inline double time_of(const std::vector<PathPart>& parts, const std::string& name) {
  for (const PathPart& part : parts)
    if (part.name == name) return part.us;
  return 0;
}

inline double sum_of(const std::vector<PathPart>& parts) {
  double sum = 0;
  for (const PathPart& part : parts) sum += part.us;
  return sum;
}

}  // namespace moonshard::tracing
