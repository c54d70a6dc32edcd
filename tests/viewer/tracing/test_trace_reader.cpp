// Traces: lanes, rows and times of real-looking text, and what becomes of hostile text.
#include <atomic>
#include <map>

#include "tests/viewer/kineto_text.h"
#include "tests/viewer/reader_support.h"
#include "viewer/tracing/trace.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

class TraceReader : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) {
    write_text(root_.path() / name, text);
    return root_.path() / name;
  }
  Trace read(const std::string& text) { return read_trace({write("trace.json", text)}); }
  Trace events(const std::string& list) { return read("{\"traceEvents\":[" + list + "]}"); }

  TemporaryFolder root_;
};

std::string span(double start, double length, const std::string& name = "a", int thread = 1) {
  return fmt::format(R"({{"ph":"X","name":"{}","cat":"c","pid":1,"tid":{},"ts":{},"dur":{}}})",
                     name, thread, start, length);
}

void expect_sorted_rows(const Trace& trace) {
  uint64_t count = 0;
  for (const TraceLane& lane : trace.lanes) {
    for (const TraceRow& row : lane.rows) {
      count += row.size();
      ASSERT_EQ(row.length_us.size(), row.size());
      ASSERT_EQ(row.name.size(), row.size());
      ASSERT_EQ(row.category.size(), row.size());
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_LT(row.name[i], trace.names.size());
        ASSERT_LT(row.category[i], trace.categories.size());
        ASSERT_GE(row.start_us[i], 0);
        if (i > 0) {
          ASSERT_LE(row.start_us[i - 1] + static_cast<double>(row.length_us[i - 1]),
                    row.start_us[i]);
        }
      }
    }
  }
  EXPECT_EQ(count, trace.num_events);
}

bool has_problem(const Trace& trace, const std::string& part) {
  for (const std::string& problem : trace.problems) {
    if (contains(problem, part)) return true;
  }
  return false;
}

TEST_F(TraceReader, makes_lanes_of_threads_and_streams_and_rows_by_nesting) {
  std::string text;
  write_kineto_text({4000, 3}, [&](const std::string& part) { text += part; });
  const Trace trace = read(text);
  EXPECT_EQ(trace.num_events, 4000u);
  EXPECT_EQ(trace.num_skipped, 0u);
  EXPECT_TRUE(trace.problems.empty());
  ASSERT_EQ(trace.lanes.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    const TraceLane& lane = trace.lanes[i];
    EXPECT_EQ(lane.rank, 3);
    EXPECT_EQ(lane.gpu, i >= 4) << "host threads come before streams";
    EXPECT_EQ(lane.rows.size(), lane.gpu ? 1u : 4u) << "operators call operators, kernels do not";
    EXPECT_EQ(lane.process, lane.gpu ? "GPU 0" : "moonshard");
  }
  EXPECT_EQ(trace.lanes[0].thread, "thread 9026");
  EXPECT_EQ(trace.lanes[4].thread, "stream 7");
  expect_sorted_rows(trace);
}

TEST_F(TraceReader, reads_compressed_text_like_plain_text) {
  std::string text;
  write_kineto_text({20'000, 0}, [&](const std::string& part) { text += part; });
  const Trace plain = read_trace({write("plain.json", text)});
  const fs::path packed = gzip(write("packed.json", text));
  const std::string error = io_error_of([&] {
    const Trace inflated = read_trace({packed});
    EXPECT_EQ(inflated.num_events, plain.num_events);
    ASSERT_EQ(inflated.lanes.size(), plain.lanes.size());
    for (size_t i = 0; i < plain.lanes.size(); ++i) {
      EXPECT_EQ(inflated.lanes[i].rows[0].start_us, plain.lanes[i].rows[0].start_us);
    }
    // Cut in the middle: what came before is there.
    write("cut.json.gz", read_bytes(packed).substr(0, fs::file_size(packed) / 2));
    const Trace cut = read_trace({root_.path() / "cut.json.gz"});
    EXPECT_GT(cut.num_events, plain.num_events / 4);
    EXPECT_LT(cut.num_events, plain.num_events);
    EXPECT_TRUE(has_problem(cut, "what came before is shown"));
  });
  if (contains(error, "built without zlib")) GTEST_SKIP() << error;
  EXPECT_EQ(error, "");
}

TEST_F(TraceReader, reads_bytes_in_memory_like_the_file_of_them) {
  std::string text;
  write_kineto_text({50, 0}, [&](const std::string& part) { text += part; });
  const fs::path plain = write("trace.rank3.json", text);
  const Trace expected = read_trace({plain});
  const std::string error = io_error_of([&] {
    for (const fs::path& path : {plain, gzip(write("packed.rank3.json", text))}) {
      const std::string bytes = read_bytes(path);
      const Trace trace = read_trace(OpenFile(bytes, path.string()), {}, {});
      EXPECT_EQ(trace.num_events, expected.num_events);
      ASSERT_EQ(trace.lanes.size(), expected.lanes.size());
      for (size_t i = 0; i < trace.lanes.size(); ++i) {
        EXPECT_EQ(trace.lanes[i].rank, expected.lanes[i].rank);
        EXPECT_EQ(trace.lanes[i].rows[0].start_us, expected.lanes[i].rows[0].start_us);
      }
    }
  });
  if (contains(error, "built without zlib")) GTEST_SKIP() << error;
  EXPECT_EQ(error, "");
}

TEST_F(TraceReader, puts_ranks_on_one_axis) {
  const auto file = [&](int rank, const std::string& base, double start) {
    return write(fmt::format("trace.rank{}.json", rank),
                 "{" + base + "\"traceEvents\":[" + span(start, 10) + "]}");
  };
  const Trace same = read_trace({file(0, "\"baseTimeNanoseconds\":1790857026000000000,", 5000),
                                 file(1, "\"baseTimeNanoseconds\":1790857026001000000,", 4500)});
  ASSERT_EQ(same.lanes.size(), 2u);
  EXPECT_EQ(same.lanes[0].rank, 0);
  EXPECT_EQ(same.lanes[1].rank, 1);
  EXPECT_DOUBLE_EQ(same.lanes[0].rows[0].start_us[0], 0);
  EXPECT_DOUBLE_EQ(same.lanes[1].rows[0].start_us[0], 500) << "its clock counts from 1 ms later";
  EXPECT_TRUE(same.problems.empty());
  const Trace apart = read_trace({file(0, "", 5000), file(1, "", 9e12)});
  EXPECT_EQ(apart.lanes[1].rows[0].start_us[0], 0);
  EXPECT_TRUE(has_problem(apart, "do not share a clock"));
  const Trace mixed = read_trace({file(0, "\"baseTimeNanoseconds\":5,", 5000), file(1, "", 5000)});
  EXPECT_TRUE(has_problem(mixed, "do not share a clock"));
}

TEST_F(TraceReader, nests_overlaps_that_are_no_calls_one_row_deeper) {
  const Trace trace = events(span(0, 10, "first") + "," + span(5, 10, "second") + "," +
                             span(12, 1, "third") + "," + span(20, 1, "fourth"));
  ASSERT_EQ(trace.lanes.size(), 1u);
  ASSERT_EQ(trace.lanes[0].rows.size(), 3u);
  EXPECT_EQ(trace.lanes[0].rows[0].size(), 2u);
  expect_sorted_rows(trace);
}

TEST_F(TraceReader, neighbours_that_touch_stay_in_one_row) {
  std::string list;
  double time = 3896771589217.001;
  for (int i = 0; i < 1000; ++i, time += 0.333) {
    list += (i > 0 ? "," : "") +
            fmt::format(R"({{"ph":"X","name":"k","pid":0,"tid":7,"ts":{:.3f},"dur":0.333}})", time);
  }
  const Trace trace = events(list);
  EXPECT_EQ(trace.lanes[0].rows.size(), 1u) << "rounding is no overlap";
  expect_sorted_rows(trace);
}

TEST_F(TraceReader, reads_begins_and_ends_instants_counters_and_labels) {
  const Trace trace = events(R"(
    {"ph":"B","name":"outer","pid":1,"tid":1,"ts":10},{"ph":"B","name":"inner","pid":1,"tid":1,"ts":11},
    {"ph":"E","pid":1,"tid":1,"ts":12},{"ph":"E","pid":1,"tid":1,"ts":20},
    {"ph":"E","pid":1,"tid":1,"ts":21},{"ph":"B","name":"open","pid":1,"tid":1,"ts":30},
    {"args":{"a":1,"b":2},"ph":"C","name":"memory","pid":1,"ts":15},
    {"ph":"C","name":"memory","pid":1,"ts":12,"args":{"a":3,"b":4}},
    {"ph":"i","name":"mark","pid":1,"tid":1,"ts":40},{"ph":"s","id":1,"pid":1,"tid":1,"ts":1},
    {"ph":"M","name":"process_name","pid":1,"args":{"name":"program"}},
    {"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"main"}})");
  ASSERT_EQ(trace.lanes.size(), 1u);
  EXPECT_EQ(trace.lanes[0].process, "program");
  EXPECT_EQ(trace.lanes[0].thread, "main");
  ASSERT_EQ(trace.lanes[0].rows.size(), 2u);
  EXPECT_EQ(trace.lanes[0].rows[0].length_us[0], 10);
  EXPECT_EQ(trace.lanes[0].rows[1].length_us[0], 1);
  EXPECT_TRUE(has_problem(trace, "1 spans have no end"));
  EXPECT_TRUE(has_problem(trace, "end a span that never began"));
  EXPECT_EQ(trace.num_events, 4u);
  EXPECT_EQ(trace.num_skipped, 2u);
  ASSERT_EQ(trace.counters.size(), 2u);
  EXPECT_EQ(trace.counters[0].name, "memory a");
  EXPECT_EQ(trace.counters[0].value, (std::vector<double>{3, 1})) << "sorted by time";
}

TEST_F(TraceReader, takes_a_bare_list_and_texts_for_numbers_of_processes) {
  const Trace trace = read(R"([{"ph":"X","name":"%n","pid":"Spans","tid":"","ts":1,"dur":2}])");
  ASSERT_EQ(trace.lanes.size(), 1u);
  EXPECT_EQ(trace.lanes[0].process, "Spans");
  EXPECT_EQ(trace.names, std::vector<std::string>{"%n"});
}

TEST_F(TraceReader, skips_and_counts_times_that_make_no_sense) {
  const Trace trace = events(
      R"({"ph":"X","name":"a","ts":NaN,"dur":1},{"ph":"X","name":"a","ts":-5,"dur":1},
         {"ph":"X","name":"a","ts":1e308,"dur":1},{"ph":"X","name":"a","ts":1,"dur":-1},
         {"ph":"X","name":"a","ts":1,"dur":Infinity},{"ph":"X","name":"a","dur":1},
         {"ph":"X","name":"a","ts":"1","dur":1},7,{"ph":"X","name":"good","ts":3,"dur":1e999},
         {"ph":"X","name":"good","ts":3,"dur":1}])"
      "[");
  EXPECT_EQ(trace.num_events, 1u);
  EXPECT_EQ(trace.num_skipped, 9u);
  EXPECT_TRUE(has_problem(trace, "8 events have no time"));
}

TEST_F(TraceReader, keeps_what_was_whole_of_each_beginning_of_a_file) {
  const std::string text = "{\"traceEvents\":[" + span(0, 1) + "," + span(2, 1) + "],\"x\":[{}]}";
  for (size_t size = 0; size < text.size(); ++size) {
    const fs::path path = write("cut.json", text.substr(0, size));
    const std::string error = io_error_of([&] {
      const Trace trace = read_trace({path});
      EXPECT_EQ(trace.problems.size(), 1u) << size;
      expect_sorted_rows(trace);
    });
    const bool in_events = size > text.find('[');
    EXPECT_EQ(error.empty(), in_events) << size << " " << error;
  }
  EXPECT_EQ(read(text).num_events, 2u);
}

TEST_F(TraceReader, drops_what_is_too_deep_and_says_how_much) {
  std::string list;
  for (int i = 0; i < 100; ++i) list += (i > 0 ? "," : "") + span(i, 1000 - 2 * i);
  const Trace trace = events(list);
  EXPECT_EQ(trace.lanes[0].rows.size(), 64u);
  EXPECT_EQ(trace.num_events, 64u);
  EXPECT_TRUE(has_problem(trace, "36 events are nested deeper"));
}

TEST_F(TraceReader, keeps_within_its_limits) {
  std::string list;
  for (int i = 0; i < 1000; ++i) list += (i > 0 ? "," : "") + span(i, 1, fmt::format("n{}", i), i);
  const fs::path path = write("many.json", "[" + list + "]");
  TraceLimits limits;
  limits.max_events = 100;
  const Trace few = read_trace({path}, {}, limits);
  EXPECT_EQ(few.num_events, 100u);
  EXPECT_TRUE(has_problem(few, "at most 100 events"));
  limits = {};
  limits.max_names = 10;
  limits.max_lanes = 20;
  const Trace narrow = read_trace({path}, {}, limits);
  EXPECT_LE(narrow.names.size(), 10u);
  EXPECT_EQ(narrow.lanes.size(), 20u);
  EXPECT_TRUE(has_problem(narrow, "more threads than are shown"));
  limits = {};
  limits.max_text_bytes = 10'000;
  const Trace cut = read_trace({path}, {}, limits);
  EXPECT_TRUE(has_problem(cut, "at most 10000 bytes"));
}

TEST_F(TraceReader, bounds_counters_labels_arguments_and_problems) {
  std::string list = span(1, 1);
  for (int i = 0; i < 1100; ++i)
    list += fmt::format(R"(,{{"ph":"C","name":"c{}","pid":1,"ts":1,"args":{{"value":1}}}})", i);
  std::string arguments = "\"a\":1";
  for (int i = 0; i < 70; ++i) arguments += fmt::format(",\"k{}\":1", i);
  list += R"(,{"ph":"C","name":"many","pid":1,"ts":1,"args":{)" + arguments + "}}";
  const Trace trace = events(list);
  EXPECT_EQ(trace.counters.size(), 1000u);
  EXPECT_EQ(trace.num_skipped, 100u + 64u);
  std::string labels = span(1, 1, "a", 3);
  for (int i = 0; i < 4; ++i)
    labels += fmt::format(
        R"(,{{"ph":"M","name":"thread_name","pid":1,"tid":{},"args":{{"name":"t{}"}}}})", i, i);
  TraceLimits limits;
  limits.max_lanes = 1;
  const Trace few = read_trace({write("labels.json", "[" + labels + "]")}, {}, limits);
  EXPECT_EQ(few.lanes.at(0).thread, "thread 3") << "the label came after too many others";
  const std::vector<fs::path> cut(120, write("cut.json", "[" + span(1, 1)));
  EXPECT_EQ(read_trace(cut).problems.size(), 100u);
}

TEST_F(TraceReader, makes_curves_of_memory_for_each_device) {
  const auto memory = [](const char* arguments) {
    return fmt::format(R"({{"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":1,"args":{{{}}}}})",
                       arguments);
  };
  const Trace trace = events(memory(R"("Device Type":0,"Device Id":-1,"Total Allocated":5)") + "," +
                             memory(R"("Device Type":1,"Device Id":2,"Total Allocated":6)") + "," +
                             memory(R"("Device Type":1,"Total Allocated":7)") + "," +
                             memory(R"("Device Type":1,"Total Allocated":"x")") + "," +
                             memory(R"("Device Type":1)"));
  std::map<std::string, double> last;
  for (const TraceCounter& counter : trace.counters) last[counter.name] = counter.value.back();
  EXPECT_EQ(last, (std::map<std::string, double>{{"CPU memory (bytes)", 5},
                                                 {"GPU 0 memory (bytes)", 7},
                                                 {"GPU 2 memory (bytes)", 6}}));
}

TEST_F(TraceReader, labels_and_ranks_of_another_kind_are_not_taken) {
  const Trace trace =
      read(R"({"distributedInfo":{"rank":1e9},"traceEvents":[)" + span(1, 1) +
           R"(,{"ph":"X","cat":"gpu_memset","name":"m","pid":0,"tid":7,"ts":1,"dur":1})"
           R"(,{"ph":"X","cat":"concurrent_kernel","name":"k","pid":0,"tid":8,"ts":1,"dur":1})"
           R"(,{"ph":"M","name":"process_labels","pid":1,"args":{}})"
           R"(,{"ph":"M","name":"process_sort_index","pid":1,"args":{"sort_index":NaN}}]})");
  ASSERT_EQ(trace.lanes.size(), 3u);
  EXPECT_EQ(trace.lanes[0].rank, -1);
  EXPECT_FALSE(trace.lanes[0].gpu);
  EXPECT_TRUE(trace.lanes[1].gpu && trace.lanes[2].gpu);
}

// A megabyte of gzip that holds a gigabyte: read no further than the limit of text.
TEST_F(TraceReader, a_bomb_costs_no_more_than_the_limit_of_text) {
  const fs::path path = write("bomb.json", "[" + span(1, 1) + "," + std::string(64u << 20, ' '));
  const fs::path packed = gzip(path);
  ASSERT_LT(fs::file_size(packed), 1u << 20);
  TraceLimits limits;
  limits.max_text_bytes = 1u << 20;
  const std::string error = io_error_of([&] {
    const Trace trace = read_trace({packed}, {}, limits);
    EXPECT_EQ(trace.num_events, 1u);
    EXPECT_TRUE(has_problem(trace, "at most 1048576 bytes"));
  });
  if (contains(error, "built without zlib")) GTEST_SKIP() << error;
  EXPECT_EQ(error, "");
}

TEST_F(TraceReader, refuses_what_is_no_trace) {
  make_pipe(root_.path() / "pipe.json");
  fs::create_directories(root_.path() / "folder.json");
  EXPECT_TRUE(contains(io_error_of([&] { read_trace({root_.path() / "pipe.json"}); }), "pipe"));
  EXPECT_TRUE(contains(io_error_of([&] { read_trace({root_.path() / "folder.json"}); }), "folder"));
  EXPECT_TRUE(contains(io_error_of([&] { read_trace({root_.path() / "none.json"}); }), "No such"));
  for (const char* text : {"", "7", "{}", "{\"traceEvents\":5}", "hello", "\x1f\x8bgarbage"}) {
    EXPECT_FALSE(io_error_of([&] { read(text); }).empty()) << text;
  }
  const Trace deep = read(std::string(100'000, '['));
  EXPECT_EQ(deep.num_events, 0u);
  EXPECT_TRUE(has_problem(deep, "deeper than 256"));
}

TEST_F(TraceReader, stops_when_asked_to_in_the_middle_of_a_file) {
  std::string text;
  write_kineto_text({50'000, 0}, [&](const std::string& part) { text += part; });
  std::atomic<bool> stop{false};
  ReadControl control;
  control.stop = &stop;
  int reports = 0;
  control.progress = [&](double share) {
    EXPECT_GE(share, 0);
    EXPECT_LE(share, 1);
    if (++reports == 2) stop = true;
  };
  EXPECT_THROW(read_trace({write("trace.json", text)}, control), Cancelled);
  EXPECT_EQ(reports, 2);
}

// Columns, not objects: what is kept grows by some tens of bytes per event, whatever the text is.
TEST_F(TraceReader, keeps_a_few_bytes_of_each_event) {
  std::map<int64_t, size_t> held;
  for (const int64_t count : {10'000, 20'000, 40'000}) {
    std::string text;
    write_kineto_text({count, 0}, [&](const std::string& part) { text += part; });
    const Trace trace = read(text);
    for (const TraceLane& lane : trace.lanes) {
      for (const TraceRow& row : lane.rows) {
        held[count] +=
            row.start_us.capacity() * 8 +
            4 * (row.length_us.capacity() + row.name.capacity() + row.category.capacity());
      }
    }
    EXPECT_EQ(held[count], static_cast<size_t>(count) * 20);
    EXPECT_LT(held[count], text.size() / 10);
  }
}

TEST_F(TraceReader, what_the_profiler_says_of_itself_is_no_lane) {
  const std::string own =
      R"({"ph":"X","cat":"Trace","name":"Profiler","pid":"Spans","tid":"P","ts":0,"dur":9})"
      R"(,{"ph":"i","s":"g","name":"Iteration Start: P","pid":"Traces","tid":"P","ts":0})"
      R"(,{"ph":"i","s":"g","name":"Record Window End","pid":"","tid":"","ts":5000})";
  const Trace trace = events(span(10, 20) + "," + own);
  ASSERT_EQ(trace.lanes.size(), 1u);
  EXPECT_EQ(trace.lanes[0].rows[0].start_us[0], 0);
  EXPECT_EQ(trace.length_us, 20) << "the trace ends with its last span";
  EXPECT_EQ(trace.num_events, 1u);
  EXPECT_EQ(trace.num_skipped, 3u);
  EXPECT_EQ(events(own).lanes.size(), 3u) << "a file of nothing else is shown";
  const Trace work =
      events(span(10, 20) +
             R"(,{"ph":"X","cat":"overhead","name":"Buffer","pid":-1,"tid":0,"ts":12,"dur":3})");
  ASSERT_EQ(work.lanes.size(), 2u);
  EXPECT_EQ(work.lanes[1].process, "profiler");
  EXPECT_EQ(work.lanes[1].thread, "profiler's own work");
}

}  // namespace
}  // namespace moonshard::viewer
