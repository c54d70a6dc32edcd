#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/records/csv.h"
#include "runtime/records/reader.h"
#include "runtime/records/writer.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

RunFolderWriter two_points(const fs::path& root) {
  RunFolderWriter writer = RunFolderWriter::create(root, "test");
  writer.write_environment({{"schema_version", 1}});
  writer.write_sweep("test", Json::object(), {"mode"},
                     {{"aa", {{"mode", "none"}}, "none_result.json"},
                      {"bb", {{"mode", "materialize"}}, "m_result.json"}});
  return writer;
}

TEST(RunFolder, IsReadableWhileItIsWritten) {
  const TemporaryFolder root;
  RunFolderWriter writer = two_points(root.path());
  EXPECT_EQ(load_run_folder(writer.path()).points[0].status, "planned");
  writer.write_status("aa", "running");
  EXPECT_EQ(load_run_folder(writer.path()).points[0].status, "running");
  writer.write_result(
      "aa",
      {{"status", "ok"}, {"options", {{"mode", "none"}}}, {"metrics", {{"avg_time_ms", 2.5}}}});
  const RunFolder run = load_run_folder(writer.path());
  // The parent may have died before it wrote the word: the record decides.
  EXPECT_EQ(run.points[0].status, "ok");
  EXPECT_EQ(run.points[0].metrics["avg_time_ms"], 2.5);
  EXPECT_EQ(run.points[1].status, "planned");
  EXPECT_EQ(run.axes, std::vector<std::string>{"mode"});
}

TEST(RunFolder, TwoInOneSecondGetTwoNames) {
  const TemporaryFolder root;
  EXPECT_NE(RunFolderWriter::create(root.path(), "x").path(),
            RunFolderWriter::create(root.path(), "x").path());
}

TEST(RunFolder, ADamagedPointDoesNotHideTheOthers) {
  const TemporaryFolder root;
  RunFolderWriter writer = two_points(root.path());
  writer.write_result("aa", {{"status", "ok"}});
  writer.write_status("bb", "running");
  std::ofstream(writer.point_folder("bb") / "result.json") << "{\"status\": ";
  const RunFolder run = load_run_folder(writer.path());
  EXPECT_EQ(run.points[0].status, "ok");
  EXPECT_EQ(run.points[1].status, "unreadable");
  EXPECT_THAT(run.points[1].error, HasSubstr("result.json"));
  EXPECT_EQ(run.problems.size(), 1u);
}

TEST(RunFolder, LinksThatLeadOutAreNotFollowed) {
  const TemporaryFolder root, outside;
  RunFolderWriter writer = two_points(root.path());
  std::ofstream(outside.path() / "result.json") << R"({"status": "ok", "error": "secret"})";
  fs::create_directories(writer.path() / "points" / "aa");
  fs::create_symlink(outside.path() / "result.json",
                     writer.path() / "points" / "aa" / "result.json");
  fs::create_directory_symlink(outside.path(), writer.path() / "points" / "bb");
  const RunFolder run = load_run_folder(writer.path());
  EXPECT_EQ(run.points[0].status, "unreadable");
  EXPECT_EQ(run.points[1].status, "unreadable");
  EXPECT_THAT(run.points[0].error, Not(HasSubstr("secret")));
  EXPECT_EQ(read_log_tail(writer.path(), "../..", 100), "");
}

TEST(RunFolder, IdsThatAreNotPlainNamesAreRefused) {
  const TemporaryFolder root;
  std::ofstream(root.path() / "sweep.json")
      << R"({"schema_version": 1, "points": [{"id": "../../etc"}, {"id": "ok1"}]})";
  const RunFolder run = load_run_folder(root.path());
  ASSERT_EQ(run.points.size(), 1u);
  EXPECT_EQ(run.points[0].id, "ok1");
  EXPECT_FALSE(run.problems.empty());
}

TEST(RunFolder, WhatIsNotOneIsAClearError) {
  const TemporaryFolder root;
  const auto error_of = [](const fs::path& path) {
    try {
      load_run_folder(path);
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of(root.path()),
              HasSubstr("expected a run folder with sweep.json, got a folder without one"));
  EXPECT_THAT(error_of(root.path() / "no"), HasSubstr("got nothing at that path"));
  std::ofstream(root.path() / "sweep.json") << R"({"schema_version": 99})";
  EXPECT_THAT(error_of(root.path()), HasSubstr("open it with a newer moonshard"));
  std::ofstream(root.path() / "sweep.json") << R"({"schema_version": 0})";
  EXPECT_THAT(error_of(root.path()), HasSubstr("expected schema_version 1 to 2, got 0"));
  fs::remove(root.path() / "sweep.json");
  EXPECT_THROW(RunFolderWriter::open(root.path()), IoError);
  EXPECT_THROW(RunFolderWriter::attach(root.path()), IoError);
}

TEST(RunFolder, SaysWhenItWasMade) {
  const TemporaryFolder root;
  const std::string before = timestamp_utc();
  const std::string created = load_run_folder(two_points(root.path()).path()).created;
  EXPECT_GE(created, before);
  EXPECT_LE(created, timestamp_utc());
}

TEST(RunFolder, AnIndexHasALineForEachPointAndNoOther) {
  const TemporaryFolder root;
  RunFolderWriter writer = two_points(root.path());
  for (const char* id : {"aa", "bb", "aa"}) {
    writer.write_result(id, {{"status", "ok"}});
    writer.update_index(id);
  }
  std::ifstream file(writer.path() / "index.jsonl");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) EXPECT_THAT(line, HasSubstr("\"id\""));
  EXPECT_EQ(lines, 3);
}

TEST(RunFolder, IndexHasOneLinePerPoint) {
  const TemporaryFolder root;
  RunFolderWriter writer = two_points(root.path());
  writer.write_result(
      "aa",
      {{"status", "ok"}, {"options", {{"mode", "none"}}}, {"metrics", {{"avg_time_ms", 2.5}}}});
  writer.write_result(
      "bb", {{"status", "oom"}, {"options", {{"mode", "materialize"}}}, {"error", "memory, gone"}});
  writer.write_index();
  const CsvTable table = parse_csv(read_text_file(writer.path() / "index.csv", 1 << 20), "index");
  EXPECT_EQ(table.columns,
            (std::vector<std::string>{"id", "status", "mode", "avg_time_ms", "error"}));
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"aa", "ok", "none", "2.5", ""}));
  EXPECT_EQ(table.rows[1],
            (std::vector<std::string>{"bb", "oom", "materialize", "", "memory, gone"}));
}

TEST(RunFolder, CellsThatBeginAFormulaAreDefused) {
  EXPECT_EQ(csv_row({"=1", "+x", "-2.5e3", "@a", "-x,y", "a=b", "\tz"}),
            "'=1,'+x,-2.5e3,'@a,\"'-x,y\",a=b,'\tz\n");
}

TEST(RunFolder, SharedOptionsStandInTheGridOnce) {
  const TemporaryFolder root;
  RunFolderWriter writer = RunFolderWriter::create(root.path(), "test");
  writer.write_sweep("test", Json::object(), {"mode"},
                     {{"aa", {{"mode", "none"}, {"lr", 0.5}}, ""},
                      {"bb", {{"mode", "ghost"}, {"lr", 0.5}, {"extra", 1}}, "x_result.json"}});
  const Json sweep = read_json_file(writer.path() / "sweep.json");
  EXPECT_EQ(sweep["common"], (Json{{"lr", 0.5}}));
  EXPECT_EQ(sweep["points"][0]["options"], (Json{{"mode", "none"}}));
  const RunTable table(writer.path());
  EXPECT_EQ(table.head().digest, Digest::Right);
  EXPECT_EQ(table.planned(1).options, (Json{{"lr", 0.5}, {"mode", "ghost"}, {"extra", 1}}));
  EXPECT_EQ(load_run_folder(writer.path()).points[1].options, table.planned(1).options);
}

TEST(RunFolder, TheIndexSaysWhatTheRecordsSayAndOnlyAsLongAsTheyDo) {
  const TemporaryFolder root;
  RunFolderWriter writer = two_points(root.path());
  const auto store = [&](double time) {
    writer.write_result("aa", {{"status", "ok"},
                               {"options", {{"mode", "none"}, {"device", "cpu"}}},
                               {"metrics", {{"avg_time_ms", time}}}});
  };
  store(2.5);
  writer.update_index("aa");
  std::ofstream(writer.path() / "index.jsonl", std::ios::app) << "{\"id\":\"bb\",\"sta";
  const PointRecord read = load_run_folder(writer.path()).points[0];
  const PointRecord known = RunTable(writer.path()).summary(0);
  EXPECT_EQ(known.metrics, read.metrics);
  EXPECT_EQ(known.options, read.options);
  EXPECT_EQ(RunTable(writer.path()).summary(1).status, "planned");
  store(3.25);  // as large, but another
  EXPECT_EQ(RunTable(writer.path()).summary(0).metrics["avg_time_ms"], 3.25);
  writer.update_index("aa");  // after the line that was cut off
  EXPECT_EQ(RunTable(writer.path()).summary(0).metrics["avg_time_ms"], 3.25);
}

TEST(RunFolder, ATableWithoutItsIndexHasTheSameCells) {
  const TemporaryFolder root;
  RunFolderWriter writer = RunFolderWriter::create(root.path(), "test");
  writer.write_environment({{"schema_version", 1}});
  writer.write_sweep("test", Json::object(), {"min_num_params"},
                     {{"aa", {{"min_num_params", 100000000}}, "a_result.json"}});
  writer.write_result("aa", {{"status", "ok"},
                             {"options", {{"min_num_params", 1e8}}},
                             {"metrics", {{"avg_time_ms", 2.5}}}});
  const auto table = [&] {
    std::string text;
    RunTable(writer.path()).write_csv([&](const std::string& row) { text += row; });
    return text;
  };
  writer.update_index("aa");
  const std::string with_index = table();
  EXPECT_THAT(with_index, HasSubstr(",100000000,"));
  fs::remove(writer.path() / "index.jsonl");
  EXPECT_EQ(table(), with_index);
}

TEST(RunFolder, AChangedRecordIsNamed) {
  const TemporaryFolder root;
  RunFolderWriter writer = two_points(root.path());
  writer.write_result("aa", {{"status", "ok"}, {"options", {{"mode", "none"}}}});
  EXPECT_EQ(RunTable(writer.path()).altered(0), "");
  const fs::path file = writer.path() / "points/aa/result.json";
  std::string text = read_text_file(file, 4096);
  text.replace(text.find("none"), 4, "some");
  std::ofstream(file) << text;
  EXPECT_EQ(RunTable(writer.path()).altered(0),
            "points/aa/result.json: was changed after it was written; options.mode: expected "
            "\"none\" as in sweep.json, got \"some\"");
  EXPECT_THAT(load_run_folder(writer.path()).problems.at(0), HasSubstr("its digest is another"));
}

TEST(RunFolder, AWarmupOnAGpuMayBeLongerThanAsked) {
  const auto differences = [](int warmup, int iters, const char* device) {
    return option_differences({"warmup", "iters"}, {{"warmup", 4}, {"iters", 6}},
                              {{"warmup", warmup}, {"iters", iters}, {"device", device}}, false)
        .size();
  };
  EXPECT_EQ(differences(7, 6, "cuda"), 0u);
  EXPECT_EQ(differences(3, 6, "cuda"), 1u);
  EXPECT_EQ(differences(4, 9, "cuda"), 1u);
  EXPECT_EQ(differences(7, 6, "cpu"), 1u);
}

TEST(RunFolder, NothingIsWrittenThroughLinksThatLeadOut) {
  const TemporaryFolder root, outside;
  RunFolderWriter writer = two_points(root.path());
  fs::create_directories(writer.path() / "points");
  fs::create_directory_symlink(outside.path(), writer.path() / "points/aa");
  fs::create_directory_symlink(outside.path(), writer.path() / "visualizations");
  std::ofstream(outside.path() / "result.json") << "mine";
  EXPECT_THROW(writer.write_status("aa", "ok"), IoError);
  EXPECT_THROW(writer.write_result("aa", {{"status", "ok"}}), IoError);
  EXPECT_THROW(writer.remove_result("aa"), IoError);
  EXPECT_THROW(writer.write_file("visualizations/new/x.plot.json", "{}"), IoError);
  fs::create_symlink(outside.path() / "result.json", writer.path() / "index.jsonl");
  EXPECT_THROW(append_to_file(writer.path() / "index.jsonl", "x", Access::Shared), IoError);
  EXPECT_EQ(std::distance(fs::directory_iterator(outside.path()), fs::directory_iterator()), 1);
  EXPECT_EQ(read_text_file(outside.path() / "result.json", 100), "mine");
}

TEST(RunFolder, ValuesOfAnotherKindAreLeftOutAndNamed) {
  Json record = parse_json(R"({"status": "ok", "time": 7, "steps": [1], "own": {},
                               "metrics": {"avg_time_ms": "x", "score": 1},
                               "memory": {"peak_bytes": "y", "peak_phase": "z"}})",
                           "record");
  EXPECT_EQ(make_well_typed(record).size(), 4u);
  EXPECT_EQ(record, parse_json(R"({"status": "ok", "own": {}, "metrics": {"score": 1},
                                   "memory": {"peak_phase": "z"}})",
                               "record"));
}

TEST(OptionsHash, DependsOnValuesNotOnOrder) {
  EXPECT_EQ(options_hash({{"a", 1}, {"b", "x"}}), options_hash({{"b", "x"}, {"a", 1}}));
  EXPECT_NE(options_hash({{"a", 1}}), options_hash({{"a", 2}}));
  EXPECT_NE(options_hash({{"a", 1}}), options_hash({{"a", "1"}}));
}

}  // namespace
}  // namespace moonshard::records
