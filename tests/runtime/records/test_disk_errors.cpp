// G9: every call that writes a run folder fails once, in every way that disks fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>

#include <fstream>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/records/reader.h"
#include "runtime/records/writer.h"
#include "tests/support/failing_disk.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of_error.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kErrors[] = {ENOSPC, EIO, EDQUOT, EROFS, EMFILE};

Json record(double milliseconds, const char* mode = "none") {
  return {{"status", "ok"},
          {"options", {{"mode", mode}}},
          {"metrics", {{"avg_time_ms", milliseconds}}}};
}

RunFolderWriter with_a_result(const fs::path& root) {
  FailingDisk quick;
  const DiskScope scope(quick);
  RunFolderWriter writer = RunFolderWriter::create(root, "disk");
  writer.write_sweep("disk", Json::object(), {"mode"},
                     {{"aa", {{"mode", "none"}}, "none_result.json"},
                      {"bb", {{"mode", "ghost"}}, "ghost_result.json"}});
  writer.write_result("aa", record(1));
  writer.update_index("aa");
  return writer;
}

// Does the work with each of its calls failing in turn. What it says must name a path and what to
// do; `check` looks at the folder afterwards, on the system's disk, and hears whether it was said.
void with_every_call_failing(const std::function<void(RunFolderWriter&)>& work,
                             const std::function<void(const fs::path&, bool failed)>& check) {
  for (const int error : kErrors) {
    int64_t said = 0;
    for (int64_t at = 1;; ++at) {
      const TemporaryFolder root;
      RunFolderWriter writer = with_a_result(root.path());
      FailingDisk failing;
      failing.fails_at = at;
      failing.error = error;
      std::string text;
      {
        const DiskScope scope(failing);
        text = text_of_error([&] { work(writer); });
      }
      SCOPED_TRACE(fmt::format("call {}: {}: '{}'", at, std::strerror(error), text));
      if (!text.empty()) {
        ++said;
        EXPECT_THAT(text, AllOf(StartsWith("/"), HasSubstr(": cannot "), HasSubstr("; ")));
      }
      check(writer.path(), !text.empty());
      if (failing.calls < at) break;
      ASSERT_LT(at, 1000);
    }
    EXPECT_GT(said, 3) << std::strerror(error);
  }
}

TEST(DiskErrors, AResultIsTheOldOrTheNewOne) {
  with_every_call_failing([](RunFolderWriter& writer) { writer.write_result("aa", record(2)); },
                          [](const fs::path& folder, bool failed) {
                            const RunFolder run = load_run_folder(folder);
                            EXPECT_EQ(run.points[0].status, "ok");
                            EXPECT_TRUE(run.problems.empty());
                            const double ms = run.points[0].metrics["avg_time_ms"];
                            EXPECT_THAT(ms, AnyOf(1.0, 2.0));
                            if (!failed) {
                              EXPECT_EQ(ms, 2.0) << "nothing was said, so it must be there";
                            }
                          });
}

TEST(DiskErrors, AFirstResultIsThereOrNot) {
  with_every_call_failing([](RunFolderWriter& writer) { writer.write_result("bb", record(2)); },
                          [](const fs::path& folder, bool failed) {
                            const RunFolder run = load_run_folder(folder);
                            EXPECT_THAT(run.points[1].status, AnyOf("ok", "planned"));
                            if (!failed) {
                              EXPECT_EQ(run.points[1].status, "ok");
                            }
                            EXPECT_EQ(run.points[0].metrics["avg_time_ms"], 1.0);
                            EXPECT_TRUE(run.problems.empty());
                          });
}

TEST(DiskErrors, AGridIsTheOldOrTheNewOne) {
  with_every_call_failing(
      [](RunFolderWriter& writer) {
        writer.write_sweep("other", Json::object(), {"mode"},
                           {{"aa", {{"mode", "none"}}, "none_result.json"}});
      },
      [](const fs::path& folder, bool failed) {
        const RunFolder run = load_run_folder(folder);
        EXPECT_EQ(run.points.size(), run.name == "other" ? 1u : 2u);
        if (!failed) {
          EXPECT_EQ(run.name, "other");
        }
        EXPECT_TRUE(run.problems.empty());
      });
}

// An index is a copy of what records say: whatever becomes of it, they are read.
TEST(DiskErrors, AnIndexHidesNothing) {
  with_every_call_failing(
      [](RunFolderWriter& writer) {
        writer.write_result("bb", record(2, "ghost"));
        writer.update_index("bb");
        writer.write_index();
      },
      [](const fs::path& folder, bool failed) {
        const RunFolder run = load_run_folder(folder);
        EXPECT_EQ(run.points[0].status, "ok");
        EXPECT_THAT(run.points[1].status, AnyOf("ok", "planned"));
        RunFolderWriter again = RunFolderWriter::open(folder);
        again.write_index();
        std::ifstream table(folder / "index.csv");
        const std::string text((std::istreambuf_iterator<char>(table)), {});
        EXPECT_THAT(text, HasSubstr("ghost"));
        EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
        if (!failed) {
          EXPECT_EQ(run.points[1].status, "ok");
        }
      });
}

TEST(DiskErrors, ARunFolderThatCannotBeMadeIsAnError) {
  const TemporaryFolder root;
  FailingDisk failing;
  failing.error = EACCES;
  const DiskScope scope(failing);
  bool is_said = false;
  do {
    failing.calls = 0;
    ++failing.fails_at;
    const std::string text = text_of_error([&] { RunFolderWriter::create(root.path(), "x"); });
    is_said = is_said || text.find("cannot make the folder: Permission denied; choose another") !=
                             std::string::npos;
  } while (failing.calls >= failing.fails_at);
  EXPECT_TRUE(is_said);
}

TEST(DiskErrors, AnEarlierResultThatCannotBeRemovedIsAnError) {
  const TemporaryFolder root;
  RunFolderWriter writer = with_a_result(root.path());
  FailingDisk failing;
  failing.error = EACCES;
  bool is_said = false;
  for (int64_t at = 1; at < 50; ++at) {  // making the point's folder comes before
    writer.write_result("aa", record(1));
    failing.calls = 0;
    failing.fails_at = at;
    const DiskScope scope(failing);
    const std::string text = text_of_error([&] { writer.remove_result("aa"); });
    if (text.find("cannot remove an earlier result") != std::string::npos) {
      EXPECT_THAT(text, HasSubstr("Permission denied; check the folder"));
      is_said = true;
      break;
    }
  }
  EXPECT_TRUE(is_said);
  EXPECT_EQ(load_run_folder(writer.path()).points[0].status, "ok");
  writer.remove_result("aa");
  EXPECT_EQ(load_run_folder(writer.path()).points[0].status, "planned");
  EXPECT_EQ(text_of_error([&] { writer.remove_result("aa"); }), "") << "what is gone is no error";
  EXPECT_EQ(text_of_error([&] { writer.remove_result("bb"); }), "");
}

// A table that took a second to write is left alone for as long as that is little.
TEST(DiskErrors, ATableIsNotWrittenAnewForEveryPoint) {
  const TemporaryFolder root;
  RunFolderWriter writer = with_a_result(root.path());
  FailingDisk slow;
  slow.tick = 1;
  const DiskScope scope(slow);
  writer.write_index();
  fs::remove(writer.path() / "index.csv");
  int updates = 0;
  for (; updates < 1000 && !fs::exists(writer.path() / "index.csv"); ++updates)
    writer.update_index("aa");
  EXPECT_GT(updates, 5);
  EXPECT_LT(updates, 100);
}

}  // namespace
}  // namespace moonshard::records
