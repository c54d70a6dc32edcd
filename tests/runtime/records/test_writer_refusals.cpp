// What the writer of a run folder refuses, sweeps away and leaves alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "runtime/base/check.h"
#include "runtime/records/writer.h"
#include "tests/support/failing_disk.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of_error.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RunFolderWriter one_planned(const fs::path& root) {
  RunFolderWriter writer = RunFolderWriter::create(root, "refusals");
  writer.write_sweep("refusals", Json::object(), {"mode"}, {{"aa", {{"mode", "none"}}, ""}});
  return writer;
}

/// Of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

// Beside sweep.json, in the folders of points and beside figures; what somebody still writes stays.
TEST(WriterRefusals, OpeningSweepsAwayWhatDeadWritersLeftEverywhere) {
  const TemporaryFolder root;
  RunFolderWriter writer = one_planned(root.path());
  writer.write_status("aa", "running");
  writer.write_file("visualizations/x.plot.json", "{}");
  const std::string dead = fmt::format(".moonshard-tmp.{}.0", dead_process());
  const std::string alive = fmt::format(".moonshard-tmp.{}.0", ::getpid());
  const char* places[] = {"index.csv", "points/aa/result.json", "visualizations/x.plot.json"};
  for (const char* place : places) {
    std::ofstream(writer.path() / (place + dead)) << "x";
    std::ofstream(writer.path() / (place + alive)) << "x";
  }
  RunFolderWriter::attach(writer.path());  // beside others at work
  EXPECT_TRUE(fs::exists(writer.path() / (places[0] + dead)));
  RunFolderWriter::open(writer.path());
  for (const char* place : places) {
    EXPECT_FALSE(fs::exists(writer.path() / (place + dead))) << place;
    EXPECT_TRUE(fs::exists(writer.path() / (place + alive))) << place;
  }
}

TEST(WriterRefusals, FilesOutsideTheFolderAreNotWritten) {
  const TemporaryFolder root;
  RunFolderWriter writer = one_planned(root.path());
  const fs::path absolute = root.path() / "absolute";
  for (const std::string& path :
       {std::string(), std::string("."), std::string("../beside"), std::string("visualizations/.."),
        std::string("visualizations/../../beside"), absolute.string()})
    EXPECT_THAT(text_of_error([&] { writer.write_file(path, "x"); }),
                HasSubstr("expected a file name inside " + writer.path().string()))
        << "'" << path << "'";
  EXPECT_EQ(std::distance(fs::directory_iterator(root.path()), {}), 1) << "the run folder alone";
  EXPECT_FALSE(fs::exists(writer.path() / "visualizations")) << "nothing is made on the way";
  writer.write_file("visualizations/../notes.txt", "x");
  EXPECT_TRUE(fs::exists(writer.path() / "notes.txt"));
}

TEST(WriterRefusals, AGridIsBegunBeforeItHasPointsAndBeforeItEnds) {
  const TemporaryFolder root;
  RunFolderWriter writer = RunFolderWriter::create(root.path(), "");
  EXPECT_THAT(text_of_error([&] { writer.add_points({}); }),
              HasSubstr("expected begin_sweep before points"));
  EXPECT_THAT(text_of_error([&] { writer.end_sweep(); }),
              HasSubstr("expected begin_sweep before end_sweep"));
  writer.begin_sweep({});
  writer.end_sweep();
  EXPECT_THAT(text_of_error([&] { writer.end_sweep(); }),
              HasSubstr("expected begin_sweep before end_sweep"));
}

TEST(WriterRefusals, AnOptionThatOnePointLacksIsSharedByNone) {
  const TemporaryFolder root;
  RunFolderWriter writer = RunFolderWriter::create(root.path(), "");
  writer.write_sweep("x", Json::object(), {"mode"},
                     {{"aa", {{"mode", "none"}, {"lr", 0.5}, {"momentum", 0.9}}, ""},
                      {"bb", {{"mode", "ghost"}, {"lr", 0.5}}, ""},
                      {"cc", {{"mode", "ghost"}, {"lr", 0.5}, {"momentum", 0.9}}, ""}});
  const RunTable table(writer.path());
  EXPECT_EQ(table.head().common, (Json{{"lr", 0.5}}));
  EXPECT_EQ(table.planned(0).options, (Json{{"lr", 0.5}, {"mode", "none"}, {"momentum", 0.9}}));
  EXPECT_EQ(table.planned(1).options, (Json{{"lr", 0.5}, {"mode", "ghost"}}));
}

// Colleagues read results: the umask decides, as for any folder.
TEST(WriterRefusals, ARunFolderIsMadeForAllWhomTheUmaskLetsIn) {
  const TemporaryFolder root;
  const mode_t before = ::umask(027);
  const RunFolderWriter writer = RunFolderWriter::create(root.path(), "");
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(writer.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0750u);
}

/// One whose clock stands still, and where every run folder of that second but one is there.
class BusySecond : public FailingDisk {
 public:
  std::string free;  ///< the end of its name
  int64_t time() override { return 1'700'000'000; }
  int mkdir(const char* path, unsigned mode) override {
    if (!free.empty() && std::string_view(path).ends_with(free))
      return FailingDisk::mkdir(path, mode);
    errno = EEXIST;
    return -1;
  }
};

TEST(WriterRefusals, AThousandRunsInOneSecondAreTooMany) {
  const TemporaryFolder root;
  BusySecond busy;
  const DiskScope scope(busy);
  busy.free = "_x";
  const std::string first = RunFolderWriter::create(root.path(), "x").path();
  for (const char* end : {"_x-2", "_x-999"}) {
    busy.free = end;
    EXPECT_EQ(RunFolderWriter::create(root.path(), "x").path(), first + (end + 2));
  }
  for (const char* end : {"", "_x-0", "_x-1", "_x-1000"}) {
    busy.free = end;
    EXPECT_EQ(text_of_error([&] { RunFolderWriter::create(root.path(), "x"); }),
              first + ": a thousand runs in one second");
  }
}

TEST(WriterRefusals, AGridOfTooManyPointsIsReadAsFarAsTheyGoAndSaysSoOnce) {
  const TemporaryFolder root;
  for (const size_t beyond : {0, 1, 3}) {
    std::string text = R"({"schema_version": 1, "points": [{"id": "p"})";
    for (size_t i = 1; i < kMaxPointsPerFolder + beyond; ++i) text += R"(,{"id": "p"})";
    std::ofstream(root.path() / "sweep.json") << text << "]}";
    size_t taken = 0;
    const SweepHead head = read_sweep_file(root.path(), [&](PlannedPoint&&) { ++taken; });
    EXPECT_EQ(taken, kMaxPointsPerFolder);
    if (beyond == 0)
      EXPECT_TRUE(head.problems.empty());
    else
      EXPECT_THAT(head.problems,
                  ElementsAre("sweep.json: more than 100000 points, the rest is not shown"));
  }
}

TEST(WriterRefusals, AnIdThatIsNoneIsNamedByItsFirstLetters) {
  const TemporaryFolder root;
  std::ofstream(root.path() / "sweep.json")
      << R"({"schema_version": 1, "points": [{"id": ")" << std::string(70, 'x') << "\"}]}";
  const SweepHead head = read_sweep_file(root.path(), [](PlannedPoint&&) { FAIL(); });
  EXPECT_THAT(head.problems, ElementsAre("sweep.json: a point's id is '" + std::string(40, 'x') +
                                         "', expected letters and digits"));
}

}  // namespace
}  // namespace moonshard::records
