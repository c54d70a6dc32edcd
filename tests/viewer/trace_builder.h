// Traces for tests and figures: span by span, or one like a training step's with as many events as
// wanted.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "viewer/tracing/trace.h"

namespace moonshard::viewer {

class TraceBuilder {
 public:
  size_t lane(int64_t rank, const std::string& thread, bool gpu = false) {
    TraceLane lane;
    lane.rank = rank;
    lane.process = "moonshard";
    lane.thread = thread;
    lane.gpu = gpu;
    trace_.lanes.push_back(std::move(lane));
    return trace_.lanes.size() - 1;
  }

  /// Spans of one row are added in order of time.
  TraceBuilder& span(size_t lane, size_t depth, double start_us, double length_us,
                     const std::string& name, const std::string& category = "cpu_op") {
    std::vector<TraceRow>& rows = trace_.lanes[lane].rows;
    if (rows.size() <= depth) rows.resize(depth + 1);
    rows[depth].start_us.push_back(start_us);
    rows[depth].length_us.push_back(static_cast<float>(length_us));
    rows[depth].name.push_back(place(names_, trace_.names, name));
    rows[depth].category.push_back(place(categories_, trace_.categories, category));
    trace_.length_us = std::max(trace_.length_us, start_us + length_us);
    ++trace_.num_events;
    return *this;
  }

  TraceBuilder& sample(const std::string& counter, double time_us, double value) {
    if (trace_.counters.empty() || trace_.counters.back().name != counter) {
      trace_.counters.push_back({counter, {}, {}});
    }
    trace_.counters.back().time_us.push_back(time_us);
    trace_.counters.back().value.push_back(value);
    return *this;
  }

  const Trace& trace() const { return trace_; }
  Trace take() { return std::move(trace_); }

 private:
  static uint32_t place(std::unordered_map<std::string, uint32_t>& known,
                        std::vector<std::string>& list, const std::string& text) {
    const auto [entry, fresh] = known.try_emplace(text, static_cast<uint32_t>(list.size()));
    if (fresh) list.push_back(text);
    return entry->second;
  }
  Trace trace_;
  std::unordered_map<std::string, uint32_t> names_, categories_;
};

/// Numbers that are the same on every machine.
class PlainRandom {
 public:
  double operator()() {  // 0 up to 1
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_ = 7;
};

/// About num_events spans on two ranks, each a host thread with depth rows of nested operators, a
/// stream of kernels and one of collectives, and a memory counter.
inline Trace make_big_trace(uint64_t num_events, size_t depth = 5) {
  static constexpr std::array kPhases = {"data", "forward", "backward", "norms", "optimizer"};
  static constexpr std::array kOps = {"aten::mm",     "aten::add_", "aten::mul", "aten::copy_",
                                      "aten::linear", "aten::view", "aten::sum", "aten::empty",
                                      "aten::matmul", "aten::neg",  "aten::cat", "aten::to"};
  static constexpr std::array kKernels = {"gemm_bf16_128x128", "vectorized_elementwise_kernel",
                                          "reduce_kernel", "flash_fwd_kernel"};
  TraceBuilder builder;
  PlainRandom random;
  for (int rank = 0; rank < 2; ++rank) {
    const size_t host = builder.lane(rank, "thread 1 (main)");
    const size_t stream = builder.lane(rank, "stream 7", true);
    const size_t network = builder.lane(rank, "stream 20", true);
    std::vector<double> row_end(depth, 0);
    double kernel_end = 0, collective_end = 0;
    uint64_t made = 0;
    const uint64_t wanted = num_events / 2;
    for (uint64_t step = 0; made < wanted; ++step) {
      const double phase_start = 1000.0 * static_cast<double>(step);
      builder.span(host, 0, phase_start, 990, kPhases[step % kPhases.size()], "user_annotation");
      ++made;
      for (size_t op = 0; op < 16 && made < wanted; ++op) {
        double start = phase_start + 60.0 * static_cast<double>(op) + 4 * random();
        double length = 20 + 30 * random();
        for (size_t row = 1; row < depth; ++row) {
          builder.span(host, row, start, length, kOps[(op + row * 5) % kOps.size()]);
          ++made;
          if (row > 1 && length > 2 &&
              depth < 10) {  // a second one beside the first, within the same parent
            builder.span(host, row, start + length * 1.05, length * 0.5, kOps[(op + row) % 12]);
            ++made;
          }
          start += length * (depth < 10 ? 0.1 : 0.02);
          length *= depth < 10 ? 0.45 : 0.95;
        }
        const double kernel_start =
            std::max(kernel_end, phase_start + 60.0 * static_cast<double>(op));
        const double kernel_length = 10 + 60 * random() * random();
        builder.span(stream, 0, kernel_start, kernel_length, kKernels[op % kKernels.size()],
                     "kernel");
        kernel_end = kernel_start + kernel_length + 1;
        ++made;
        if (op % 8 == 3) {
          const double begin = std::max(collective_end, kernel_start + 5);
          builder.span(network, 0, begin, 90, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "kernel");
          collective_end = begin + 95;
          ++made;
        }
      }
      if (rank == 0) {
        builder.sample("memory allocated [bytes]", phase_start,
                       2e9 + 1e9 * random() + (step % 5 == 2 ? 4e9 : 0));
      }
    }
  }
  return builder.take();
}

}  // namespace moonshard::viewer
