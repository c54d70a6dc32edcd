// moonshard doctor DIR: every kind of defect that a run folder can have is named, with its file.
#include "runtime/records/folder_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include <fmt/ranges.h>

#include "runtime/records/csv.h"
#include "runtime/records/writer.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::optional<Json> as_they_are(const Json& options) {
  return options;
}

Json good_record(const std::string& id, const Json& options) {
  Json record = parse_json(R"({"schema_version": 1, "status": "ok",
    "metrics": {"avg_time_ms": 2.0, "median_time_ms": 2.0, "peak_memory_bytes": 1048576,
                "peak_memory_mb": 1.0, "peak_memory_gb": 0.0009765625},
    "time": {"warmup_ms": [], "samples_ms": [1.0, 3.0]},
    "memory": {"peak_bytes": 100,
               "breakdown": [{"owner": "parameters", "bytes": 60}, {"owner": "rest", "bytes": 40}],
               "timeline": {"ms": [0, 1], "total": [10, 100], "phase": ["forward", "backward"],
                            "owners": {"parameters": [10, 60]}}},
    "steps": [{"step": 1, "warmup": false, "time_ms": 1.0, "phases_ms": {"forward": 1.0}}]})",
                           "record");
  record["id"] = id;
  record["options"] = options;
  return record;
}

class DoctorOfFolders : public testing::Test {
 protected:
  DoctorOfFolders() : writer_(RunFolderWriter::create(root_.path(), "test")) {
    options_ = {{"mode", "none"}, {"world", "auto"}};
    id_ = options_hash(options_);
    writer_.write_environment({{"schema_version", 1}});
    writer_.write_sweep("test", Json::object(), {"mode"}, {{id_, options_, "none_result.json"}});
    store(good_record(id_, options_));
    writer_.write_status(id_, "ok");
    write("none_result.json",
          R"({"mode": "none", "peak_memory_mb": 1.0, "avg_time_ms": 2.0, "config": {}})");
  }

  // The record with the tables that are made from it.
  void store(const Json& record) {
    for (const auto& [name, text] : point_tables(record))
      writer_.write_file("points/" + id_ + "/" + name, text);
    writer_.write_result(id_, record);
    writer_.write_index();
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(writer_.path() / name) << text;
  }
  fs::path point(const std::string& name) const { return writer_.point_folder(id_) / name; }
  FolderCheck check() const { return check_folder(writer_.path(), &as_they_are); }

  // The only defect of the folder, as "file: what".
  std::string only_defect() const {
    const FolderCheck found = check();
    EXPECT_EQ(found.defects.size(), 1u);
    return found.defects.empty() ? "" : found.defects[0].file + ": " + found.defects[0].what;
  }

  TemporaryFolder root_;
  RunFolderWriter writer_;
  Json options_;
  std::string id_;
};

TEST_F(DoctorOfFolders, AWholeFolderHasNoDefect) {
  const FolderCheck found = check();
  for (const Defect& defect : found.defects) ADD_FAILURE() << defect.file << ": " << defect.what;
  EXPECT_EQ(found.points, 1u);
  EXPECT_GE(found.files, 6u);
}

TEST_F(DoctorOfFolders, AFileThatCannotBeReadIsNamed) {
  std::ofstream(point("result.json")) << "{\"status\": ";
  const FolderCheck found = check();
  ASSERT_FALSE(found.defects.empty());
  EXPECT_EQ(found.defects[0].file, "points/" + id_ + "/result.json");
}

TEST_F(DoctorOfFolders, IdsAreRecomputedFromOptions) {
  writer_.write_sweep("test", Json::object(), {"mode"},
                      {{id_, {{"mode", "none"}, {"world", "fake:2"}}, "none_result.json"}});
  writer_.write_index();
  EXPECT_THAT(only_defect(), HasSubstr("its options give the id"));
}

TEST_F(DoctorOfFolders, RecordsAreComparedWithTheSchema) {
  Json record = good_record(id_, options_);
  record["metrics"]["peak_memry"] = 3;
  record["metrics"]["tokens_per_s"] = "many";
  record["memory"]["timeline"]["total"] = {1};
  record["memory"]["breakdown"][0]["bytes"] = 61;
  const auto defects = check_record(record);
  const std::string all = fmt::format("{}", fmt::join(defects, "\n"));
  EXPECT_THAT(all, HasSubstr("metrics.peak_memry: the schema has no such field"));
  EXPECT_THAT(all, HasSubstr("metrics.tokens_per_s: expected a number, got \"many\""));
  EXPECT_THAT(all, HasSubstr("memory.timeline.total: expected 2 entries"));
  EXPECT_THAT(all, HasSubstr("memory.breakdown, its sum"));
  EXPECT_EQ(defects.size(), 4u) << all;
}

TEST_F(DoctorOfFolders, FiguresOfAScriptsOwnFunctionAreNoDefects) {
  Json record = good_record(id_, options_);
  record["metrics"]["score"] = 3;
  record["own_metrics"] = {"score"};
  record["steps"] = Json::array({{{"step", 1}, {"anything", 2}}});
  EXPECT_TRUE(check_record(record).empty());
  record["metrics"]["scroe"] = 3;
  EXPECT_EQ(check_record(record).size(), 1u);
}

TEST_F(DoctorOfFolders, FiguresThatContradictEachOtherAreNamed) {
  Json record = good_record(id_, options_);
  record["metrics"]["peak_memory_mb"] = 2.0;
  record["metrics"]["median_time_ms"] = 2.5;
  EXPECT_EQ(check_record(record).size(), 2u);
}

TEST_F(DoctorOfFolders, TablesAreComparedWithTheRecord) {
  std::string text = read_text_file(point("steps.csv"), 10000);
  text.replace(text.find("1.0"), 3, "9.0");
  std::ofstream(point("steps.csv")) << text;
  EXPECT_THAT(only_defect(), HasSubstr("steps.csv: is not what result.json says: row 1, column"));
}

TEST_F(DoctorOfFolders, TheIndexIsComparedWithTheRecords) {
  std::string text = read_text_file(writer_.path() / "index.csv", 10000);
  text.replace(text.find(",ok,"), 4, ",oom,");
  write("index.csv", text);
  EXPECT_THAT(only_defect(),
              HasSubstr("index.csv: is not what the records say: row 1, column 'status'"));
}

TEST_F(DoctorOfFolders, CopiesStatusAndStrangersAreNamed) {
  write("none_result.json",
        R"({"mode": "none", "peak_memory_mb": 1.5, "avg_time_ms": 2.0, "config": {}})");
  EXPECT_THAT(only_defect(),
              HasSubstr("none_result.json: peak_memory_mb: expected 1 as in points/"));
  write("none_result.json",
        R"({"mode": "none", "peak_memory_mb": 1.0, "avg_time_ms": 2.0, "config": {}})");
  writer_.write_status(id_, "failed");
  EXPECT_THAT(only_defect(), HasSubstr("status: expected ok, which the record says, got failed"));
  writer_.write_status(id_, "ok");
  fs::create_directories(writer_.path() / "points" / "stranger");
  EXPECT_THAT(only_defect(), HasSubstr("sweep.json has no such point"));
}

TEST_F(DoctorOfFolders, PicturesSpecsAndTracesMustBeWhole) {
  fs::create_directories(writer_.path() / "visualizations");
  write("visualizations/a.png", "\x89PNG and no end");
  EXPECT_THAT(only_defect(), HasSubstr("a.png: expected a whole PNG"));
  fs::remove(writer_.path() / "visualizations/a.png");
  write("visualizations/a.plot.json", "{\"title\": 3}");
  EXPECT_THAT(only_defect(), HasSubstr("a.plot.json"));
  fs::remove(writer_.path() / "visualizations/a.plot.json");
  std::ofstream(point("trace.rank0.json.gz")) << "no gzip, but long enough to be one";
  EXPECT_THAT(only_defect(), HasSubstr("expected a gzip file"));
}

TEST_F(DoctorOfFolders, AnythingMayStandAnywhere) {
  const Json good = good_record(id_, options_);
  for (const Json& odd : {Json(), Json("x"), Json(3), Json::array({1}), Json::object({{"a", 1}})}) {
    for (const auto& [key, value] : good.items()) {
      Json record = good;
      record[key] = odd;
      writer_.write_result(id_, record);
      EXPECT_NO_THROW(check()) << key << " " << odd;
    }
  }
  for (const char* text : {"[]", "3", "{\"points\": [3, {\"id\": 3}], \"axes\": {}}", "{}"}) {
    write("sweep.json", text);
    EXPECT_FALSE(check().defects.empty()) << text;
  }
}

TEST_F(DoctorOfFolders, LinksThatLeadOutAreNotRead) {
  const TemporaryFolder outside;
  std::ofstream(outside.path() / "secret.json") << "{}";
  fs::remove(writer_.path() / "env.json");
  fs::create_symlink(outside.path() / "secret.json", writer_.path() / "env.json");
  EXPECT_THAT(only_defect(), HasSubstr("env.json: leads out of the folder"));
}

TEST(DoctorOfFiles, TheResultsThatShipHaveNoDefect) {
  // Ids are of options as the schema types them, which stands beyond the records.
  const TypedOptions untyped = [](const Json&) { return std::optional<Json>(); };
  size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(MOONSHARD_SOURCE_DIR "/examples/results")) {
    if (!entry.is_directory()) continue;
    ++folders;
    for (const Defect& defect : check_folder(entry.path(), untyped).defects)
      ADD_FAILURE() << entry.path().filename() << "/" << defect.file << ": " << defect.what;
  }
  EXPECT_GE(folders, 20u);
}

TEST(DoctorOfFiles, FoldersOfResultFilesAndSingleFilesAreChecked) {
  const TemporaryFolder folder;
  EXPECT_THROW(check_folder(folder.path(), &as_they_are), IoError) << "nothing that is known";
  EXPECT_THROW(check_folder(folder.path() / "nothing", &as_they_are), IoError);
  std::ofstream(folder.path() / "ghost_seq64_result.json")
      << R"({"mode": "ghost", "peak_memory_mb": 1, "avg_time_ms": "x", "config": {}})";
  const FolderCheck found = check_folder(folder.path(), &as_they_are);
  ASSERT_EQ(found.defects.size(), 1u);
  EXPECT_EQ(found.defects[0].what, "avg_time_ms: expected a number of 0 or more, got \"x\"");
  const FolderCheck single = check_folder(folder.path() / "ghost_seq64_result.json", &as_they_are);
  EXPECT_EQ(single.defects.size(), 1u);
}

}  // namespace
}  // namespace moonshard::records
