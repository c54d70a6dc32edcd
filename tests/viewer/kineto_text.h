// Text that looks like a trace of Kineto: operators nested by calls on host threads, kernels on
// streams, with the arguments that make real traces large. For tests and benchmarks of readers.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace moonshard::viewer {

struct KinetoText {
  int64_t num_events = 1000;
  int rank = 0;
  int num_threads = 4;
  int num_streams = 3;
};

/// About 250 bytes per event. `take` gets the text piece by piece.
template <typename Take>
void write_kineto_text(const KinetoText& wanted, const Take& take) {
  static const char* const kOperators[] = {"aten::linear", "aten::addmm", "aten::to",
                                           "aten::copy_"};
  static const char* const kKernels[] = {"void at::native::elementwise_kernel<128, 4, float>(int)",
                                         "ampere_sgemm_128x64_tn",
                                         "Memcpy HtoD (Pageable -> Device)"};
  take(
      fmt::format("{{\n  \"schemaVersion\": 1,\n  \"distributedInfo\": {{\"rank\":{},"
                  "\"world_size\":2,\"backend\":\"nccl\"}},\n"
                  "  \"baseTimeNanoseconds\": 1790857026000000000,\n  \"traceEvents\": [\n",
                  wanted.rank));
  std::string text;
  double time = 3896771588581.0;
  for (int64_t i = 0; i < wanted.num_events; ++i) {
    const int lane = static_cast<int>(i / 4 % (wanted.num_threads + wanted.num_streams));
    const int depth = static_cast<int>(i % 4);
    if (depth == 0) time += 3;
    text.clear();
    if (lane < wanted.num_threads) {  // an operator calls the next, and so on
      fmt::format_to(
          std::back_inserter(text),
          "  {{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"{}\", \"pid\": 9026, \"tid\": "
          "{},\n"
          "    \"ts\": {:.3f}, \"dur\": {:.3f},\n    \"args\": {{\n      \"External id\": {},"
          "\"Record function id\": 0, \"Input type\": [\"long int\", \"Scalar\"], \"Input Dims\": "
          "[[{}, 128], []], \"Ev Idx\": {}\n    }}\n  }},\n",
          kOperators[depth], 9026 + lane, time + 0.25 * depth, 20.0 - 0.5 * depth, i, i % 64, i);
    } else {
      fmt::format_to(
          std::back_inserter(text),
          "  {{\n    \"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": 0, \"tid\": {},\n"
          "    \"ts\": {:.3f}, \"dur\": {:.3f},\n    \"args\": {{\n      \"External id\": {},"
          "\"device\": 0, \"context\": 1, \"stream\": {}, \"correlation\": {}, \"grid\": [{}, 1, "
          "1], "
          "\"block\": [128, 1, 1]\n    }}\n  }},\n",
          depth == 2 ? "gpu_memcpy" : "kernel", kKernels[depth % 3], 7 + lane - wanted.num_threads,
          time + 5.0 * depth, 4.5, i, 7 + lane - wanted.num_threads, i, i % 1024);
    }
    take(text);
  }
  take(fmt::format(
      "  {{\n    \"name\": \"process_name\", \"ph\": \"M\", \"ts\": {:.3f}, \"pid\": 9026, "
      "\"tid\": 0, \"args\": {{\"name\": \"moonshard\"}}\n  }},\n"
      "  {{\n    \"name\": \"process_labels\", \"ph\": \"M\", \"ts\": {:.3f}, \"pid\": 0, "
      "\"tid\": 0, \"args\": {{\"labels\": \"GPU 0\"}}\n  }}\n  ]\n}}\n",
      time, time));
}

}  // namespace moonshard::viewer
