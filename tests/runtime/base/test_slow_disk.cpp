// Disks that take less than they are given, are interrupted, or refuse; folders that are another's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "tests/support/failing_disk.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of_error.h"

namespace moonshard {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(SlowDisk, PiecesAndInterruptionsAddUpToTheWholeFile) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "file";
  const std::string text = "what had written in pieces is read in pieces";
  for (const size_t most_bytes : {1, 2, 3, 5, 1000}) {
    FailingDisk slow;
    slow.most_bytes = most_bytes;
    slow.interrupts = true;
    const DiskScope scope(slow);
    StagedFile file(path, StagedFile::OnInterrupt::GoOn);
    file.write(text.data(), static_cast<int64_t>(text.size()));
    file.write_at(5, "was", 3);
    file.write_at(static_cast<int64_t>(text.size()), " and more at its end", 20);
    file.finish();
    file.commit();
    const ReadOnlyFile written = ReadOnlyFile::open(path);
    std::string back(static_cast<size_t>(written.size()), '\0');
    written.read_at(0, back.data(), written.size(), "text");
    EXPECT_EQ(back, "what was written in pieces is read in pieces and more at its end");
    std::string part(7, '\0');
    written.read_at(9, part.data(), 7, "text");
    EXPECT_EQ(part, "written");
    EXPECT_THAT(
        text_of_error([&] { written.read_at(60, part.data(), 7, "the last word"); }),
        HasSubstr("the last word: expected 7 bytes at position 60, got 4; the file was cut"));
  }
}

TEST(SlowDisk, AReadThatFailsIsAnErrorAndNotTriedForEver) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "text";
  FailingDisk failing;
  const DiskScope scope(failing);
  const ReadOnlyFile file = ReadOnlyFile::open(folder.path() / "file");
  failing.fails_at = failing.calls + 1;
  failing.error = EIO;
  char letter = 0;
  EXPECT_THAT(text_of_error([&] { file.read_at(0, &letter, 1, "text"); }),
              HasSubstr("cannot read: Input/output error"));
}

TEST(SlowDisk, OneThatTakesNothingMoreIsFull) {
  const TemporaryFolder folder;
  FailingDisk full;
  const DiskScope scope(full);
  StagedFile file(folder.path() / "file", StagedFile::OnInterrupt::GoOn);
  full.most_bytes = 0;
  EXPECT_THAT(text_of_error([&] { file.write("text", 4); }), HasSubstr("No space left on device"));
  EXPECT_THAT(text_of_error([&] { file.write_at(0, "text", 4); }),
              HasSubstr("No space left on device"));
}

// Some disks say only then that there was no room.
TEST(SlowDisk, AFileThatCannotBeClosedIsNotThere) {
  const TemporaryFolder folder;
  FailingDisk failing;
  failing.close_fails = true;
  const DiskScope scope(failing);
  EXPECT_THAT(text_of_error([&] { write_file_atomically(folder.path() / "file", "text"); }),
              HasSubstr("cannot write: No space left on device"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SlowDisk, EveryRefusalSaysWhatToDo) {
  const std::pair<int, const char*> cases[] = {
      {ENOSPC, "cannot write: No space left on device; free space on that disk"},
      {EDQUOT, "cannot write: Disk quota exceeded; free space on that disk"},
      {EROFS, "cannot write: Read-only file system; choose a folder you may write to"},
      {EACCES, "cannot write: Permission denied; choose a folder you may write to"},
      {EMFILE, "cannot write: Too many open files; raise 'ulimit -n'"},
      {ELOOP,
       "cannot write: Too many levels of symbolic links; it is a link, which is not "
       "followed: remove it"},
      {EIO, "cannot write: Input/output error; check the folder"}};
  const TemporaryFolder folder;
  for (const auto& [error, text] : cases) {
    for (const bool at_position : {false, true}) {
      FailingDisk failing;
      const DiskScope scope(failing);
      StagedFile file(folder.path() / "file", StagedFile::OnInterrupt::GoOn);
      failing.fails_at = failing.calls + 1;
      failing.error = error;
      const std::string said = text_of_error([&] {
        if (at_position)
          file.write_at(3, "text", 4);
        else
          file.write("text", 4);
      });
      EXPECT_THAT(said, HasSubstr(text));
    }
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << "what was begun is gone";
}

// A line of a log is whole, or an error.
TEST(SlowDisk, HalfALineIsAnError) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "log";
  FailingDisk slow;
  slow.most_bytes = 3;
  const DiskScope scope(slow);
  EXPECT_THAT(text_of_error([&] { append_to_file(path, "a line\n", Access::Shared); }),
              HasSubstr("log: cannot add to: No space left on device"));
  slow.most_bytes = 7;
  EXPECT_EQ(text_of_error([&] { append_to_file(path, "a line\n", Access::Shared); }), "");
  EXPECT_EQ(fs::file_size(path), 10u);
}

// Some file systems cannot sync a folder; a disk that fails to is another matter.
TEST(SlowDisk, AFolderThatCannotBeSyncedIsAnErrorUnlessNoneCan) {
  for (const int error : {EINVAL, EIO}) {
    const TemporaryFolder folder;
    bool is_error = false;
    for (int64_t at = 1; at < 40; ++at) {
      FailingDisk failing;
      failing.fails_at = at;
      failing.error = error;
      const DiskScope scope(failing);
      const fs::path made = folder.path() / std::to_string(at) / "in it";
      const std::string said = text_of_error([&] { create_folders(made, Access::Shared); });
      if (said.find("sync folder") != std::string::npos) is_error = true;
      if (failing.calls < at) break;
    }
    EXPECT_EQ(is_error, error == EIO);
  }
}

// One that is there may have been made by a process that was killed before it was synced.
TEST(SlowDisk, AFolderThatIsThereIsSyncedUnlessItCannotBe) {
  const TemporaryFolder folder;
  for (const int error : {EINVAL, EROFS, EIO}) {
    int errors = 0;
    FailingDisk failing;
    failing.error = error;
    const DiskScope scope(failing);
    do {
      failing.calls = 0;
      ++failing.fails_at;
      errors +=
          text_of_error([&] { create_folders(folder.path(), Access::Shared); }).empty() ? 0 : 1;
    } while (failing.calls >= failing.fails_at);
    EXPECT_EQ(errors > 0, error == EIO) << std::strerror(error);
  }
}

TEST(UserFolder, IsAFolderOfThisUserAlone) {
  const TemporaryFolder folder;
  const char* before = std::getenv("MOONSHARD_LOCK_DIR");
  const std::string kept = before != nullptr ? before : "";
  const auto error_with = [&](const fs::path& path) {
    ::setenv("MOONSHARD_LOCK_DIR", path.c_str(), 1);
    return text_of_error([] { user_folder(); });
  };
  const fs::path own = folder.path() / "own";
  EXPECT_EQ(error_with(own), "");
  EXPECT_EQ(fs::status(own).permissions() & fs::perms::all, fs::perms::owner_all);
  EXPECT_EQ(error_with(own), "") << "it is there";
  fs::create_directory_symlink(own, folder.path() / "link");
  EXPECT_THAT(error_with(folder.path() / "link"),
              HasSubstr("expected a folder of this user alone for locks and sockets"));
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_THAT(error_with(folder.path() / "file"),
              HasSubstr("expected a folder of this user alone"));
  EXPECT_THAT(error_with(folder.path() / "none" / "below"),
              HasSubstr("cannot make the folder for locks and sockets: No such file or directory"));
  if (::getuid() == 0) {
    const fs::path foreign = folder.path() / "foreign";
    fs::create_directory(foreign);
    ASSERT_EQ(::chown(foreign.c_str(), 65534, 65534), 0);
    EXPECT_THAT(error_with(foreign), HasSubstr("got another's"));
  }
  // Without the variable it is one in /tmp, which nobody else may enter: there all would meet.
  ::unsetenv("MOONSHARD_LOCK_DIR");
  EXPECT_EQ(user_folder(), fmt::format("/tmp/moonshard-{}", ::getuid()));
  if (before != nullptr) ::setenv("MOONSHARD_LOCK_DIR", kept.c_str(), 1);
}

TEST(SystemDisk, KnowsWhenAProcessBegan) {
  const double now = static_cast<double>(::time(nullptr));
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  EXPECT_TRUE(disk().is_alive(child));
  EXPECT_NEAR(disk().began(child), now, 3);
  EXPECT_EQ(disk().began(-1), 0);
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  EXPECT_FALSE(disk().is_alive(child)) << "it has ended, though nobody has asked how";
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(disk().is_alive(child));
}

// Two clocks are read for it, whose parts of a second differ.
TEST(SystemDisk, AProcessBeganAtTheSameTimeWheneverThatIsAsked) {
  const double first = disk().began(::getpid());
  ::usleep(300'000);
  EXPECT_NEAR(disk().began(::getpid()), first, 0.1);
}

TEST(SystemDisk, ATreeIsRemovedAndLinksInItAreNotFollowed) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "tree" / "branch");
  fs::create_directories(folder.path() / "elsewhere");
  std::ofstream(folder.path() / "tree" / "branch" / "leaf") << "x";
  std::ofstream(folder.path() / "elsewhere" / "file") << "x";
  fs::create_directory_symlink(folder.path() / "elsewhere", folder.path() / "tree" / "link");
  remove_tree(folder.path() / "tree");
  EXPECT_FALSE(fs::exists(folder.path() / "tree"));
  EXPECT_TRUE(fs::exists(folder.path() / "elsewhere" / "file"));
  remove_tree(folder.path() / "elsewhere" / "file");
  EXPECT_TRUE(fs::is_empty(folder.path() / "elsewhere"));
  remove_tree(folder.path() / "nothing");
}

}  // namespace
}  // namespace moonshard
