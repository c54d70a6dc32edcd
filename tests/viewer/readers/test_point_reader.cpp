// One point's details, its files, logs and tables.
#include <fmt/format.h>

#include "runtime/records/reader.h"
#include "runtime/records/schema_json.h"
#include "tests/viewer/reader_support.h"
#include "viewer/readers/readers.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

PointDetail detail_of(const std::string& result) {
  MemorySource source(result);
  JsonStream stream(source, "result.json");
  return read_result_detail(stream);
}

TEST(PointReader, reads_a_real_point_as_its_record_says) {
  const fs::path folder = source_folder() / "examples/results/document_000_llama3.1_8b";
  std::string id;  // of a private point
  for (const records::PointRecord& point : records::load_run_folder(folder).points)
    if (point.options.value("mode", "") == "ghost") id = point.id;
  ASSERT_FALSE(id.empty());
  const Json said = records::load_point(folder, id).result;
  const PointDetail detail = read_point_detail(folder, id);
  EXPECT_EQ(detail.time.step_ms.median, said["time"]["step_ms"]["median"].get<double>());
  EXPECT_EQ(detail.time.samples_ms, said["time"]["samples_ms"].get<std::vector<double>>());
  ASSERT_EQ(detail.time.phases_ms.size(), said["time"]["phases_ms"].size());
  for (size_t i = 0; i < detail.time.phases_ms.size(); ++i) {
    EXPECT_EQ(detail.time.phases_ms[i].name, said["time"]["phase_order"][i].get<std::string>());
  }
  EXPECT_EQ(detail.memory_stages.size(), said["memory_stages"].size());
  EXPECT_EQ(detail.memory.peak_bytes, said["memory"]["peak_bytes"].get<double>());
  EXPECT_EQ(detail.memory.breakdown.size(), said["memory"]["breakdown"].size());
  EXPECT_EQ(detail.memory.breakdown[0].owner,
            said["memory"]["breakdown"][0]["owner"].get<std::string>());
  const Json& timeline = said["memory"]["timeline"];
  EXPECT_EQ(detail.memory.timeline.ms, timeline["ms"].get<std::vector<double>>());
  EXPECT_EQ(detail.memory.timeline.owners.size(), timeline["owners"].size());
  for (size_t i = 0; i < detail.memory.timeline.ms.size(); ++i) {
    EXPECT_EQ(detail.memory.timeline.phase.names[detail.memory.timeline.phase.index[i]],
              timeline["phase"][i].get<std::string>());
  }
  EXPECT_EQ(detail.comm.size(), said["comm"].size());
  EXPECT_EQ(detail.steps.size(), said["steps"].size());
  EXPECT_FALSE(records::is_missing(detail.privacy));
  EXPECT_FALSE(detail.privacy.why_no_epsilon.empty());
}

TEST(PointReader, cuts_unequal_timelines_and_drops_a_histogram_that_is_none) {
  const PointDetail detail = detail_of(
      R"({"memory":{"timeline":{"owners":{"a":[1,2,3],"b":[1]},"ms":[0,1,null],"total":[5,6],
          "phase":["x","y","x"]}},
          "privacy":{"norms_histogram":{"edges":[0,1],"counts":[1,2]},"epsilon":3,
          "history":[{"q":0.1,"sigma":2,"steps":5},7,{"q":"x","sigma":null,"more":[{}]}]},"layers":[1,{},[]]})");
  EXPECT_EQ(detail.memory.timeline.ms.size(), 1u);
  EXPECT_EQ(detail.memory.timeline.total.size(), 1u);
  EXPECT_EQ(detail.memory.timeline.phase.index.size(), 1u);
  for (const auto& owner : detail.memory.timeline.owners) EXPECT_EQ(owner.value.size(), 1u);
  EXPECT_TRUE(detail.privacy.norms_histogram.counts.empty());
  EXPECT_EQ(detail.privacy.epsilon, 3);
  ASSERT_EQ(detail.privacy.history.size(), 2u);
  EXPECT_EQ(detail.privacy.history[0].sigma, 2);
  EXPECT_TRUE(std::isnan(detail.privacy.history[1].q));
  EXPECT_EQ(detail.layers.size(), 1u);
}

TEST(PointReader, keeps_at_most_a_million_numbers_of_a_list) {
  std::string text = "{\"time\":{\"samples_ms\":[0";
  for (int i = 0; i < 1'000'100; ++i) text += ",1";
  EXPECT_EQ(detail_of(text + "]}}").time.samples_ms.size(), 1'000'000u);
}

TEST(PointReader, keeps_a_thousand_lines_about_the_data_and_cuts_long_ones) {
  std::string text = "{\"data\":{\"long\":[\"" + std::string(2000, 'x') + "\",{\"a\":[1]}]";
  for (int i = 0; i < 1100; ++i) text += fmt::format(",\"k{}\":[{}]", i, i);
  const PointDetail detail = detail_of(text + "},\"status\":\"ok\"}");
  ASSERT_EQ(detail.data_lines.size(), 1000u);
  EXPECT_EQ(detail.data_lines[0].value, "[\"" + std::string(1022, 'x') + "...");
  EXPECT_EQ(detail.data_lines[999].value, "[998]");
  EXPECT_EQ(detail.status, "ok") << "what follows is read";
}

TEST(PointReader, fields_of_another_kind_are_passed_over) {
  const char* const values[] = {"1",
                                "\"x\"",
                                "null",
                                "true",
                                "[]",
                                "{}",
                                "[[{\"a\":[]}]]",
                                "{\"ms\":{\"ms\":[1]}}",
                                "[{\"step\":{}}]",
                                "1e308"};
  const char* const keys[] = {"time", "memory", "memory_stages", "norms_ms", "layers",
                              "comm", "ranks",  "steps",         "privacy",  "sharding"};
  for (const char* key : keys) {
    for (const char* value : values) {
      const std::string text =
          fmt::format("{{\"{}\":{},\"time\":{{\"warmup_ms\":[1,2]}}}}", key, value);
      if (std::string(key) == "time") continue;  // a duplicate
      EXPECT_EQ(detail_of(text).time.warmup_ms.size(), 2u) << text;
    }
  }
}

TEST(PointReader, lists_only_files_that_lie_inside) {
  TemporaryFolder root, outside;
  const fs::path folder = make_sample_run(root.path()), point = folder / "points/p0";
  for (const char* name : {"trace.rank0.json.gz", "trace.json", "result2.json", "a.pickle",
                           "log.rank0.txt", "notes.txt", "steps.csv"}) {
    write_text(point / name, "x");
  }
  write_text(outside.path() / "b", "x");
  fs::create_symlink(outside.path() / "b", point / "b.csv");
  fs::create_directories(point / "c.csv");
  make_pipe(point / "d.pickle");
  const PointDetail detail = read_point_detail(folder, "p0");
  EXPECT_EQ(detail.traces, (std::vector<std::string>{"trace.json", "trace.rank0.json.gz"}));
  EXPECT_EQ(detail.snapshots, std::vector<std::string>{"a.pickle"});
  EXPECT_EQ(detail.logs, std::vector<std::string>{"log.rank0.txt"});
  EXPECT_EQ(detail.tables, std::vector<std::string>{"steps.csv"});
  EXPECT_THROW(read_point_detail(folder, "../p0"), IoError);
  EXPECT_TRUE(read_point_detail(folder, "p3").time.phases_ms.empty())
      << "planned: nothing there yet";
}

TEST(TextReader, shows_the_end_of_a_long_log_and_says_what_is_missing) {
  TemporaryFolder root;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("line {}\n", i);
  write_text(root.path() / "log.rank0.txt", text);
  EXPECT_EQ(read_log(root.path() / "log.rank0.txt"), text);
  const std::string tail = read_log(root.path() / "log.rank0.txt", 100);
  EXPECT_TRUE(contains(tail, "bytes of this log are not shown")) << tail;
  EXPECT_TRUE(tail.ends_with("line 998\nline 999\n"));
  EXPECT_LT(tail.size(), 200u);
  const size_t line = tail.find('\n') + 1;
  EXPECT_EQ(tail.substr(line, 5), "line ") << "begins with a whole line";
}

TEST(TextReader, a_log_that_shrinks_while_it_is_read_ends_early) {
  TemporaryFolder root;
  write_text(root.path() / "log.txt", "first\nsecond\n");
  OpenFile file = open_plain_file(root.path() / "log.txt");
  fs::resize_file(root.path() / "log.txt", 6);
  EXPECT_EQ(read_log(std::move(file), 100), "first\n");
  EXPECT_TRUE(contains(io_error_of([] { read_log(fs::path("no_such_log.txt")); }),
                       "no_such_log.txt: cannot read: there is no such file"));
}

TEST(TextReader, refuses_pipes_folders_and_links_out) {
  TemporaryFolder root, outside;
  write_text(outside.path() / "x", "secret\n");
  fs::create_symlink(outside.path() / "x", root.path() / "link.txt");
  make_pipe(root.path() / "pipe.txt");
  fs::create_directories(root.path() / "folder.txt");
  for (const char* name : {"link.txt", "pipe.txt", "folder.txt", "nothing.txt"}) {
    EXPECT_FALSE(io_error_of([&] { read_log(root.path() / name); }).empty()) << name;
    EXPECT_FALSE(io_error_of([&] { read_table(root.path() / name); }).empty()) << name;
  }
}

TEST(TextReader, reads_tables_and_refuses_those_that_would_fill_memory) {
  TemporaryFolder root;
  const fs::path path = root.path() / "t.csv";
  write_text(path, "a,b\n1,\"x,\"\"y\"\n2\n");
  const records::CsvTable table = read_table(path);
  EXPECT_EQ(table.columns.size(), 2u);
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0][1], "x,\"y");
  // A header of many columns and many short rows: each row is padded to the header.
  write_text(path, std::string(9000, ',') + "\n" + std::string(100'000, '\n'));
  EXPECT_TRUE(contains(io_error_of([&] { read_table(path); }), "rows"));
  write_text(path, "a\n" + std::string(1'000'000, ',') + "\n");
  EXPECT_TRUE(contains(io_error_of([&] { read_table(path); }), "columns"));
  // The same behind a quoted newline, which is no end of a line.
  write_text(path, "\"\n\"" + std::string(9000, ',') + "\n" + std::string(100'000, '\n'));
  EXPECT_TRUE(contains(io_error_of([&] { read_table(path); }), "rows"));
}

TEST(TextReader, reads_bytes_in_memory_like_the_file_of_them) {
  TemporaryFolder root;
  const std::string text = "a,b\n1,2\n3,4\ntorn";
  const fs::path path = root.path() / "t.csv";
  write_text(path, text);
  EXPECT_EQ(read_table(OpenFile(text, "t.csv")).rows, read_table(path).rows);
  EXPECT_EQ(read_log(OpenFile(text, "t.csv"), 100), text);
  EXPECT_EQ(read_log(OpenFile(text, "t.csv"), 10), read_log(path, 10));
  EXPECT_TRUE(contains(io_error_of([&] { OpenFile(text, "t.csv").read_all(text.size() - 1); }),
                       "t.csv: expected at most"));
}

TEST(OpenFile, reads_what_was_added_after_it_was_opened_up_to_the_limit) {
  TemporaryFolder root;
  const fs::path path = root.path() / "log.txt";
  const std::string first(100, 'a'), more(50'000, 'b');
  for (const size_t limit : {first.size() + more.size(), first.size() + more.size() - 1}) {
    write_text(path, first);
    OpenFile file = open_plain_file(path);
    write_text(path, first + more);
    const std::string error = io_error_of([&] { EXPECT_EQ(file.read_all(limit), first + more); });
    EXPECT_EQ(error.empty(), limit == first.size() + more.size()) << error;
  }
}

}  // namespace
}  // namespace moonshard::viewer
