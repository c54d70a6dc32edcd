// Run folders: the same answers as runtime/records, from whole folders and from hostile ones.
#include <atomic>

#include <fmt/format.h>

#include "runtime/records/reader.h"
#include "runtime/records/sweep_file.h"
#include "runtime/records/writer.h"
#include "tests/viewer/reader_support.h"
#include "viewer/readers/readers.h"
#include "viewer/readers/sweep_file.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

// Every value of the records' point is in the tables, and nothing else.
void expect_same_cells(const RunData& run, const ValueTable& table, size_t point,
                       const Json& said) {
  size_t filled = 0;
  for (size_t key = 0; key < table.keys.size(); ++key) {
    const Value& value = table.at(point, key);
    if (value.kind == Value::Kind::None) continue;
    ++filled;
    ASSERT_TRUE(said.contains(table.keys[key])) << table.keys[key];
    const Json& expected = said[table.keys[key]];
    switch (value.kind) {
      case Value::Kind::Bool:
        EXPECT_EQ(value.number != 0, expected.get<bool>());
        break;
      case Value::Kind::Number:
        EXPECT_EQ(value.number, expected.get<double>());
        break;
      default:
        EXPECT_EQ(run.text_of(value),
                  expected.is_string() ? expected.get<std::string>() : expected.dump());
    }
  }
  EXPECT_EQ(filled, said.size()) << "a value is missing";
}

void expect_same(const fs::path& folder) {
  const records::RunFolder expected = records::load_run_folder(folder);
  const RunData run = read_run(folder);
  EXPECT_EQ(run.name, expected.name);
  EXPECT_EQ(run.created, expected.created);
  EXPECT_EQ(run.axes, expected.axes);
  EXPECT_EQ(run.plots, expected.plots);
  EXPECT_EQ(run.environment.size(), expected.environment.size());
  ASSERT_EQ(run.points.size(), expected.points.size());
  for (size_t i = 0; i < run.points.size(); ++i) {
    EXPECT_EQ(run.points[i].id, expected.points[i].id);
    EXPECT_EQ(run.points[i].status, expected.points[i].status);
    EXPECT_EQ(run.points[i].error.empty(), expected.points[i].error.empty());
    expect_same_cells(run, run.options, i, expected.points[i].options);
    expect_same_cells(run, run.metrics, i, expected.points[i].metrics);
  }
}

TEST(RunReader, says_the_same_as_the_records_reader_of_real_folders) {
  for (const char* name :
       {"document_000_llama3.1_8b", "document_002_qwen1.5_1.8b", "document_004_dit_l"}) {
    expect_same(source_folder() / "examples/results" / name);
  }
  TemporaryFolder root;
  expect_same(make_sample_run(root.path()));
}

TEST(RunReader, reads_the_baseline_the_progress_and_nested_options) {
  TemporaryFolder root;
  write_text(root.path() / "sweep.json",
             R"({"points":[{"options":{"list":[1,{"a":"b\"c"}],"none":null},"id":"p0"}],
                 "request":{"baseline":{"axis":"batch","value":8}},"schema_version":1})");
  write_text(root.path() / "progress.json",
             R"({"state":"running","total":7,"done":3,"failed":1,"elapsed_s":2.5,"eta_s":null,
                 "current":{"id":"p0","label":"mode = none","elapsed_s":1},"updated":"now"})");
  write_text(root.path() / "table.csv", "a,b\n");
  const RunData run = read_run(root.path());
  EXPECT_EQ(run.baseline_axis, "batch");
  EXPECT_EQ(run.baseline_value, "8");
  EXPECT_EQ(run.progress.state, "running");
  EXPECT_EQ(run.progress.total, 7);
  EXPECT_TRUE(std::isnan(run.progress.eta_s));
  EXPECT_EQ(run.progress.current, "mode = none");
  EXPECT_EQ(run.tables, std::vector<std::string>{"table.csv"});
  ASSERT_EQ(run.options.keys, std::vector<std::string>{"list"});
  EXPECT_EQ(run.text_of(run.options.at(0, 0)), "[1,{\"a\":\"b\\\"c\"}]");
  EXPECT_EQ(run.points[0].status, "planned");
}

TEST(RunReader, reads_the_index_and_says_the_same) {
  TemporaryFolder root;
  records::RunFolderWriter writer = records::RunFolderWriter::create(root.path(), "indexed");
  writer.write_environment({{"schema_version", 1}});
  std::vector<records::PlannedPoint> points;
  for (int i = 0; i < 20; ++i)
    points.push_back({fmt::format("p{}", i), {{"lr", i}, {"model", "m"}, {"gone", 1}}, ""});
  writer.write_sweep("indexed", Json::object(), {"lr"}, points);
  for (int i = 0; i < 18; ++i) {  // a record may have other options than planned
    writer.write_result(points[i].id, {{"status", i % 5 ? "ok" : "oom"},
                                       {"error", i % 5 ? "" : "memory"},
                                       {"options", {{"lr", i}, {"model", "n"}, {"new", true}}},
                                       {"metrics", {{"avg_time_ms", i + 0.5}}}});
    if (i != 7) writer.update_index(points[i].id);
  }
  expect_same(writer.path());
  // A line of a record that has changed does not count, and one that is no line does no harm.
  writer.write_result("p3", {{"status", "failed"}, {"error", "later"}, {"options", {{"lr", 3}}}});
  write_text(writer.path() / "index.jsonl",
             read_text_file(writer.path() / "index.jsonl", 1 << 20) + "{\"id\":\"p1\",[[\n{\"id\"");
  expect_same(writer.path());
}

TEST(RunReader, lines_of_an_index_that_fit_no_record_are_passed_over) {
  TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  const RunData expected = read_run(folder);
  const std::string numbers = R"("bytes":1e300,"seconds":-5,"nanoseconds":"x")";
  write_text(folder / "index.jsonl",
             "\nno line\n{\"id\":\"p0\n{\"id\":\"p0\",\"status\":\"failed\"," + numbers + "}\n" +
                 "{\"id\":\"p1\",\"status\":\"" + std::string(1 << 20, 'x') + "\"}\n" +
                 "{\"id\":\"p2\",\"status\":\"failed\"}{}\n{\"id\":\"p3\",\"status\":\"ok\"}\n");
  const RunData run = read_run(folder);
  ASSERT_EQ(run.points.size(), expected.points.size());
  for (size_t i = 0; i < run.points.size(); ++i)
    EXPECT_EQ(run.points[i].status, expected.points[i].status) << run.points[i].id;
}

TEST(RunReader, a_status_alone_says_how_a_point_is) {
  TemporaryFolder root;
  write_text(root.path() / "sweep.json",
             R"({"schema_version":1,"points":[{"id":"a"},{"id":"b"},{"id":"c"},7],
                 "axes":["lr",5],"request":{"baseline":{"axis":"lr","value":null,"more":[1]}}})");
  write_text(root.path() / "points/a/status", "running since noon\n");
  fs::create_directories(root.path() / "points/b/status");
  write_text(root.path() / "points/c/status", "unreadable");
  const RunData run = read_run(root.path());
  ASSERT_EQ(run.points.size(), 3u);
  EXPECT_EQ(run.points[0].status, "running");
  EXPECT_EQ(run.points[1].status, "unreadable");
  EXPECT_TRUE(contains(run.points[1].error, "a folder")) << run.points[1].error;
  EXPECT_EQ(run.points[2].status, "unreadable");
  EXPECT_EQ(run.points[2].error, "");
  EXPECT_EQ(run.axes, std::vector<std::string>{"lr"});
  EXPECT_EQ(run.baseline_axis, "lr");
  EXPECT_EQ(run.baseline_value, "");
  EXPECT_EQ(run.problems.size(), 2u) << "the folder, and the point that is none";
}

TEST(RunReader, bounds_points_and_axes) {
  std::string axes = "\"a\"", points = "{\"id\":\"p\"}";
  for (int i = 0; i < 1100; ++i) axes += fmt::format(",\"a{}\"", i);
  for (size_t i = 0; i < records::kMaxPointsPerFolder + 2; ++i)
    points += fmt::format(",{{\"id\":\"p{}\"}}", i);
  RunData run;
  Cells common;
  const std::vector<PlannedPoint> planned =
      read_sweep("{\"schema_version\":1,\"axes\":[" + axes + "],\"points\":[" + points + "]}",
                 "sweep.json", run, common);
  EXPECT_EQ(planned.size(), records::kMaxPointsPerFolder);
  EXPECT_EQ(run.axes.size(), 1000u);
  EXPECT_EQ(run.problems,
            std::vector<std::string>{"sweep.json: more than 100000 points, the rest is not shown"});
}

TEST(RunReader, cuts_the_texts_of_a_point_that_has_too_many) {
  TemporaryFolder root;
  std::string options;
  for (int i = 0; i < 70; ++i)
    options += fmt::format("{}\"o{}\":[\"{}\"]", i == 0 ? "" : ",", i, std::string(20'000, 'x'));
  write_text(root.path() / "sweep.json", R"({"schema_version":1,"points":[{"id":"p"}]})");
  write_text(root.path() / "points/p/result.json", "{\"options\":{" + options + "}}");
  const RunData run = read_run(root.path());
  EXPECT_EQ(run.options.keys.size(), 63u) << "a mebibyte of texts of 16 KiB each";
  ASSERT_EQ(run.problems.size(), 1u);
  EXPECT_TRUE(contains(run.problems[0], "texts that are too long were cut")) << run.problems[0];
}

TEST(RunReader, refuses_what_is_no_run_folder_like_the_records_reader) {
  TemporaryFolder root;
  fs::create_directories(root.path() / "empty");
  write_text(root.path() / "file", "x");
  write_text(root.path() / "newer/sweep.json", R"({"schema_version":99,"points":[]})");
  write_text(root.path() / "other/sweep.json", "[1,2]");
  for (const char* name : {"empty", "file", "nothing", "newer", "other"}) {
    const fs::path folder = root.path() / name;
    const std::string expected = io_error_of([&] { records::load_run_folder(folder); });
    EXPECT_EQ(io_error_of([&] { read_run(folder); }), expected) << name;
    EXPECT_FALSE(expected.empty());
  }
}

TEST(RunReader, a_damaged_point_is_unreadable_and_hides_no_other) {
  TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  write_text(folder / "points/p1/result.json", R"({"status":"ok","metrics":{"a":1,"a":2}})");
  const RunData run = read_run(folder);
  EXPECT_EQ(run.points[0].status, "ok");
  EXPECT_EQ(run.points[1].status, "unreadable");
  EXPECT_TRUE(contains(run.points[1].error, "duplicate key 'a'")) << run.points[1].error;
  EXPECT_EQ(run.option_number(1, "seq_length"), 1024) << "what the sweep planned is still known";
  ASSERT_EQ(run.problems.size(), 1u);
}

TEST(RunReader, survives_each_beginning_of_each_file) {
  TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  for (const char* name : {"sweep.json", "points/p0/result.json"}) {
    const std::string text = read_bytes(folder / name);
    for (size_t size = 0; size + 2 < text.size(); ++size) {
      write_text(folder / name, text.substr(0, size));
      const std::string error = io_error_of([&] {
        const RunData run = read_run(folder);
        EXPECT_EQ(run.points.at(0).status, "unreadable") << size;
        EXPECT_EQ(run.points.at(1).status, "ok");
      });
      EXPECT_EQ(error.empty(), std::string(name) != "sweep.json") << error;
    }
    write_text(folder / name, text);
  }
}

TEST(RunReader, does_not_block_on_pipes_nor_follow_links_out_nor_read_folders) {
  TemporaryFolder root, outside;
  const fs::path folder = make_sample_run(root.path());
  write_text(outside.path() / "result.json", R"({"status":"ok","metrics":{"secret":1}})");
  fs::remove(folder / "points/p0/result.json");
  make_pipe(folder / "points/p0/result.json");
  fs::remove(folder / "points/p1/result.json");
  fs::create_symlink(outside.path() / "result.json", folder / "points/p1/result.json");
  fs::remove(folder / "points/p2/result.json");
  fs::create_directories(folder / "points/p2/result.json");
  fs::remove_all(folder / "points/p3");
  fs::create_directory_symlink(outside.path(), folder / "points/p3");
  make_pipe(folder / "progress.json");
  fs::remove(folder / "env.json");
  fs::create_symlink("/etc/passwd", folder / "env.json");
  const RunData run = read_run(folder);
  for (const PointHead& point : run.points) EXPECT_EQ(point.status, "unreadable") << point.id;
  EXPECT_TRUE(contains(run.points[0].error, "pipe")) << run.points[0].error;
  EXPECT_TRUE(contains(run.points[1].error, "leads out")) << run.points[1].error;
  EXPECT_TRUE(contains(run.points[2].error, "a folder")) << run.points[2].error;
  EXPECT_TRUE(contains(run.points[3].error, "leads out")) << run.points[3].error;
  EXPECT_FALSE(run.metrics.find("secret"));
  EXPECT_EQ(run.problems.size(), 6u);
}

TEST(RunReader, follows_links_that_stay_inside) {
  TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  fs::remove_all(folder / "points/p3");
  fs::create_directory_symlink("p0", folder / "points/p3");
  const RunData run = read_run(folder);
  EXPECT_EQ(run.points[3].status, "ok");
  EXPECT_EQ(run.metric(3, "avg_time_ms"), 12.5);
}

TEST(RunReader, a_run_in_which_every_point_invents_keys_and_texts_stays_small) {
  TemporaryFolder root;
  Json sweep{{"schema_version", 1}, {"points", Json::array()}};
  constexpr int kPoints = 500, kKeys = 40;
  for (int p = 0; p < kPoints; ++p) {
    Json options = Json::object();
    for (int k = 0; k < kKeys; ++k) options[fmt::format("k{}_{}", p, k)] = k;
    options["long"] = std::string(20'000 + p, 'x');
    options[std::string(5000, 'k')] = 1;
    sweep["points"].push_back({{"id", fmt::format("p{}", p)}, {"options", options}});
  }
  write_text(root.path() / "sweep.json", sweep.dump());
  const RunData run = read_run(root.path());
  EXPECT_EQ(run.points.size(), size_t{kPoints});
  EXPECT_LE(run.options.cells.size(), 16'000'000u);
  size_t letters = 0;
  for (const std::string& text : run.texts) letters += text.size();
  EXPECT_LT(letters, 40'000u) << "long texts are cut, and equal ones are kept once";
  EXPECT_EQ(run.problems.size(), 2u);
}

TEST(RunReader, hostile_ids_names_and_numbers_are_shown_or_refused) {
  TemporaryFolder root;
  write_text(root.path() / "sweep.json",
             "{\"schema_version\":1,\"name\":\"\\u001b[31m%n\",\"axes\":[1,\"a\",{}],\"points\":["
             "{\"id\":\"../../etc\"},{\"id\":\"\"},3,{\"id\":\"ok\",\"options\":{\"x\":1e308,"
             "\"y\":\"%n\\u0007\"}}]}");
  const RunData run = read_run(root.path());
  EXPECT_EQ(run.name, "\x1b[31m%n");
  EXPECT_EQ(run.axes, std::vector<std::string>{"a"});
  ASSERT_EQ(run.points.size(), 1u);
  EXPECT_EQ(run.option_number(0, "x"), 1e308);
  EXPECT_EQ(run.problems.size(), 3u);
}

TEST(RunReader, stops_when_asked_to_and_reports_its_progress) {
  const fs::path folder = source_folder() / "examples/results/document_002_qwen1.5_1.8b";
  std::atomic<bool> stop{true};
  ReadControl control;
  control.stop = &stop;
  EXPECT_THROW(read_run(folder, control), Cancelled);
  stop = false;
  double last = -1;
  control.progress = [&](double share) {
    EXPECT_GE(share, last);
    last = share;
  };
  read_run(folder, control);
  EXPECT_EQ(last, 1);
}

}  // namespace
}  // namespace moonshard::viewer
