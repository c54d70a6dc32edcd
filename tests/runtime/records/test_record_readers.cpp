// The files of a run folder whoever wrote them: fields of another kind, links that lead out, lines
// of an index that fit no record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>

#include <fmt/format.h>

#include "runtime/records/csv.h"
#include "runtime/records/digest.h"
#include "runtime/records/point_index.h"
#include "runtime/records/reader.h"
#include "runtime/records/sweep_file.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class RecordReaders : public testing::Test {
 protected:
  fs::path write(const fs::path& name, const std::string& text) const {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  /// As load_point sees it.
  PointRecord point_of(const std::string& result) const {
    write("points/aa/result.json", result);
    return load_point(folder_.path(), "aa");
  }

  TemporaryFolder folder_, outside_;
};

TEST_F(RecordReaders, AStatusIsTheFirstWordOfAFileInside) {
  const fs::path file = write("points/aa/status", "running since noon\n");
  EXPECT_EQ(status_word(folder_.path(), "aa"), "running");
  EXPECT_EQ(status_word(folder_.path(), "bb"), "");
  EXPECT_EQ(status_word(folder_.path(), "../points/aa"), "");
  EXPECT_EQ(status_word(folder_.path() / "none", "aa"), "");
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(status_word(folder_.path(), "aa"), "");
  fs::remove(file);
  std::ofstream(outside_.path() / "status") << "secret";
  fs::create_symlink(outside_.path() / "status", file);
  EXPECT_EQ(status_word(folder_.path(), "aa"), "");
  EXPECT_EQ(load_point(folder_.path(), "aa").status, "planned");
}

TEST_F(RecordReaders, ALogEndsWithItsLastBytes) {
  write("points/aa/log.rank0.txt", "first\nlast\n");
  EXPECT_EQ(read_log_tail(folder_.path(), "aa", 5), "last\n");
  EXPECT_EQ(read_log_tail(folder_.path(), "aa", 100), "first\nlast\n");
  EXPECT_EQ(read_log_tail(folder_.path(), "bb", 100), "");
  fs::create_directories(folder_.path() / "points/cc/log.rank0.txt");
  EXPECT_EQ(read_log_tail(folder_.path(), "cc", 100), "");
  fs::create_directories(folder_.path() / "points/dd");
  ASSERT_EQ(::mkfifo((folder_.path() / "points/dd/log.rank0.txt").c_str(), 0600), 0);
  EXPECT_EQ(read_log_tail(folder_.path(), "dd", 100), "") << "nobody waits for a pipe's writer";
}

TEST_F(RecordReaders, FieldsOfAnotherKindAreNotTaken) {
  const PointRecord point = point_of(
      R"({"status": 7, "error": [], "options": [1], "metrics": "x", "own_metrics": ["score", 7]})");
  EXPECT_EQ(point.status, "planned");
  EXPECT_EQ(point.error, "");
  EXPECT_TRUE(point.options.empty());
  EXPECT_TRUE(point.metrics.empty());
  EXPECT_THAT(point.own_metrics, ElementsAre("score"));
  EXPECT_TRUE(point_of(R"({"status": "ok", "own_metrics": "score"})").own_metrics.empty());
  EXPECT_EQ(point_of("[1]").status, "unreadable");
  EXPECT_EQ(point_of("[1]").error, "aa: result.json is not an object");
  EXPECT_THAT([&] { load_point(folder_.path(), "../aa"); },
              ThrowsMessage<UsageError>(HasSubstr("letters and digits, got '../aa'")));
}

TEST_F(RecordReaders, AFolderOfManyDamagedPointsNamesAHundred) {
  std::string points;
  for (int i = 0; i < 120; ++i) {
    points += fmt::format("{}{{\"id\": \"p{}\"}}", i == 0 ? "" : ", ", i);
    write(fmt::format("points/p{}/result.json", i), "{");
  }
  write("sweep.json", R"({"schema_version": 1, "points": [)" + points + "]}");
  const RunFolder run = load_run_folder(folder_.path());
  EXPECT_EQ(run.points.size(), 120u);
  EXPECT_EQ(run.points[119].status, "unreadable");
  EXPECT_EQ(run.problems.size(), 100u);
}

TEST_F(RecordReaders, PlotsAreWholeFilesInside) {
  write("visualizations/b.plot.json", "{}");
  write("visualizations/a.plot.json", "{}");
  write("visualizations/notes.txt", "");
  write("visualizations/c.moonshard-tmp.1.1.plot.json", "{}");
  std::ofstream(outside_.path() / "secret") << "{}";
  fs::create_symlink(outside_.path() / "secret", folder_.path() / "visualizations/d.plot.json");
  EXPECT_THAT(plot_names(folder_.path()), ElementsAre("a.plot.json", "b.plot.json"));
}

// ---- sweep.json ---------------------------------------------------------------------------------

TEST_F(RecordReaders, AGridsFieldsOfAnotherKindAreNotTaken) {
  write("sweep.json", R"({"schema_version": 2, "name": 7, "created": [], "axes": ["mode", 7],
                          "request": [], "common": "x", "points": [7, {"id": "aa", "options": [1]}]})");
  std::vector<PlannedPoint> points;
  const auto take = [&](PlannedPoint&& point) { points.push_back(std::move(point)); };
  const SweepHead head = read_sweep_file(folder_.path(), take);
  EXPECT_EQ(head.name, folder_.path().filename());
  EXPECT_EQ(head.created, "");
  EXPECT_THAT(head.axes, ElementsAre("mode"));
  EXPECT_TRUE(head.request.empty() && head.common.empty());
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].options, Json::object());
  write("sweep.json", R"({"schema_version": 2, "axes": "mode"})");
  EXPECT_TRUE(read_sweep_file(folder_.path(), take).axes.empty());
}

TEST_F(RecordReaders, AGridThatLeadsOutIsNotOpened) {
  std::ofstream(outside_.path() / "sweep.json") << R"({"schema_version": 2})";
  fs::create_symlink(outside_.path() / "sweep.json", folder_.path() / "sweep.json");
  EXPECT_THAT([&] { load_run_folder(folder_.path()); },
              ThrowsMessage<IoError>(HasSubstr("sweep.json: leads out of the run folder")));
}

TEST_F(RecordReaders, AGridOfManyNamelessPointsTellsAHundred) {
  std::string text = R"({"schema_version": 2, "points": [{})";
  for (int i = 0; i < 5000; ++i) text += ",{}";
  write("sweep.json", text + "]}");
  EXPECT_EQ(read_sweep_file(folder_.path(), [](PlannedPoint&&) {}).problems.size(), kMaxProblems);
}

TEST_F(RecordReaders, AGridOfTooManyPointsIsCutAndSaysSo) {
  std::string text = R"({"schema_version": 2, "points": [{"id": "p0"})";
  for (size_t i = 1; i < kMaxPointsPerFolder + 3; ++i)
    text += fmt::format(",{{\"id\":\"p{}\"}}", i);
  write("sweep.json", text + "]}");
  size_t count = 0;
  const SweepHead head = read_sweep_file(folder_.path(), [&](PlannedPoint&&) { ++count; });
  EXPECT_EQ(count, kMaxPointsPerFolder);
  EXPECT_THAT(head.problems,
              ElementsAre("sweep.json: more than 100000 points, the rest is not shown"));
}

TEST_F(RecordReaders, ALargeGridIsReadBackAndAChangeOfItIsNoticed) {
  SweepHead head;
  head.name = "large";
  {
    SweepFileWriter writer(folder_.path(), head);
    for (int i = 0; i < 3; ++i)
      writer.add(
          {fmt::format("p{}", i), {{"note", std::string(500'000, 'x')}}, "", {{"lr", "1/3"}}});
    writer.finish();
  }
  std::vector<Json> asked;
  const auto take = [&](PlannedPoint&& point) { asked.push_back(point.asked); };
  EXPECT_EQ(read_sweep_file(folder_.path(), take).digest, Digest::Right);
  EXPECT_THAT(asked, ElementsAre(Json{{"lr", "1/3"}}, Json{{"lr", "1/3"}}, Json{{"lr", "1/3"}}));
  std::string text = read_text_file(folder_.path() / "sweep.json", 1 << 24);
  text.replace(text.find("large"), 5, "small");
  write("sweep.json", text);
  const SweepHead changed = read_sweep_file(folder_.path(), take);
  EXPECT_EQ(changed.digest, Digest::Wrong);
  EXPECT_THAT(changed.problems.at(0), HasSubstr("its digest is another"));
}

TEST(RecordDigest, OfAFileThatAnotherProgramWroteAnewIsWrong) {
  const std::string text = with_digest(to_text({{"status", "ok"}}));
  EXPECT_EQ(check_digest(text), Digest::Right);
  EXPECT_EQ(check_digest(one_line(parse_json(text, "text"))), Digest::Wrong);
  EXPECT_EQ(check_digest("{}"), Digest::None);
  EXPECT_EQ(digest_in("{}"), "");
}

// ---- index.jsonl --------------------------------------------------------------------------------

/// A line for the record of "aa" as it is now, with these fields more.
std::string index_line(const fs::path& folder, const std::string& more) {
  struct stat status {};
  EXPECT_EQ(::stat((folder / "points/aa/result.json").c_str(), &status), 0);
  return fmt::format(R"({{"id":"aa","status":"ok","bytes":{},"seconds":{},"nanoseconds":{}{}}})"
                     "\n",
                     status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec, more);
}

TEST_F(RecordReaders, AnIndexLineIsTakenAsFarAsItIsOfTheRightKind) {
  write("points/aa/result.json", "{}");
  const auto entry_of = [&](const std::string& more) {
    write("index.jsonl", index_line(folder_.path(), more));
    return PointIndex(folder_.path()).find("aa");
  };
  const auto full = entry_of(
      R"(,"error":"e","digest":"d","options":{"a":1},"metrics":{"b":2},"own_metrics":["b",3])");
  ASSERT_TRUE(full.has_value());
  EXPECT_EQ(full->error, "e");
  EXPECT_EQ(full->digest, "d");
  EXPECT_EQ(full->options, (Json{{"a", 1}}));
  EXPECT_EQ(full->metrics, (Json{{"b", 2}}));
  EXPECT_THAT(full->own_metrics, ElementsAre("b"));
  const auto other = entry_of(R"(,"error":1,"options":[1],"metrics":7,"own_metrics":"b")");
  ASSERT_TRUE(other.has_value());
  EXPECT_TRUE(other->options.empty() && other->metrics.empty() && other->own_metrics.empty());
  EXPECT_TRUE(entry_of("").has_value());
  EXPECT_FALSE(entry_of(",").has_value()) << "no JSON";
}

TEST_F(RecordReaders, WhatIsNoLineOfAnIndexIsPassedOver) {
  write("points/aa/result.json", "{}");
  const std::string good = index_line(folder_.path(), "");
  write("index.jsonl",
        "\n{}\n{\"id\":\"a/b\",\"status\":\"ok\"}\n{\"id\":\"aa\n"
        "{\"id\":\"bb\",\"status\":\"ok\",\"bytes\":1,\"seconds\":1}\n"
        "{\"id\":\"cc\",\"status\":\"\",\"bytes\":1,\"seconds\":1,\"nanoseconds\":1}\n" +
            good);
  EXPECT_EQ(PointIndex(folder_.path()).status_of("aa"), "ok");
  EXPECT_EQ(PointIndex(folder_.path()).status_of("bb"), std::nullopt);
  write("index.jsonl",
        index_line(folder_.path(), ",\"error\":\"" + std::string(1 << 20, 'x') + "\""));
  EXPECT_EQ(PointIndex(folder_.path()).status_of("aa"), std::nullopt)
      << "longer than a line may be";
  write("index.jsonl", std::string(5 << 20, 'x') + "\n" + good);
  EXPECT_EQ(PointIndex(folder_.path()).status_of("aa"), "ok") << "behind one that is too long";
  fs::rename(folder_.path() / "index.jsonl", outside_.path() / "index.jsonl");
  fs::create_symlink(outside_.path() / "index.jsonl", folder_.path() / "index.jsonl");
  std::ofstream(outside_.path() / "index.jsonl") << good;
  EXPECT_EQ(PointIndex(folder_.path()).status_of("aa"), std::nullopt) << "leads out";
}

TEST_F(RecordReaders, AnIndexSaysNothingOfRecordsThatAreGoneOrOther) {
  write("points/aa/result.json", "{}");
  PointIndex index(folder_.path());
  IndexEntry entry{"aa", "ok", "", "", Json::object(), {{"score", 1}}, {"score"}};
  index.add(entry);
  EXPECT_EQ(index.find("aa")->own_metrics, entry.own_metrics);
  EXPECT_EQ(PointIndex(folder_.path()).find("aa")->own_metrics, entry.own_metrics);
  entry.id = "bb";
  index.add(entry);  // has no record
  EXPECT_EQ(index.find("bb"), std::nullopt);
  fs::remove(folder_.path() / "index.jsonl");
  EXPECT_EQ(index.status_of("aa"), "ok");
  EXPECT_FALSE(index.find("aa").has_value()) << "the file is gone";
  fs::remove(folder_.path() / "points/aa/result.json");
  EXPECT_EQ(index.status_of("aa"), std::nullopt);
  fs::create_directories(folder_.path() / "points/aa/result.json");
  EXPECT_EQ(index.status_of("aa"), std::nullopt);
}

// ---- tables -------------------------------------------------------------------------------------

TEST(RecordTables, AreMadeOfWhatARecordHas) {
  const Json record = parse_json(
      R"({"steps": [{"step": 1, "phases_ms": {"forward": 2}}, {"step": 2, "phases_ms": 7}],
          "comm": "none"})",
      "record");
  const auto tables = point_tables(record);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].first, "steps.csv");
  EXPECT_EQ(tables[0].second, "step,forward_ms\n1,2\n2,\n");
  EXPECT_EQ(csv_row({"+", "-", "+1"}), "'+,'-,+1\n");
}

TEST(RecordTables, OfAnotherShapeAreErrorsWithTheFieldsName) {
  const auto made_of = [](const std::string& text) {
    return [text] { point_tables(parse_json(text, "record")); };
  };
  EXPECT_THAT(made_of(R"({"comm": [1]})"),
              ThrowsMessage<UsageError>(
                  HasSubstr("record: comm: expected a list of objects, got 1 in it")));
  for (const char* timeline : {R"({"ms": [1]})", R"({"ms": [1], "phase": [], "total": [1]})", "7"})
    EXPECT_THAT(made_of(fmt::format(R"({{"memory": {{"timeline": {}}}}})", timeline)),
                ThrowsMessage<UsageError>(HasSubstr("record: memory.timeline: expected lists")));
}

}  // namespace
}  // namespace moonshard::records
