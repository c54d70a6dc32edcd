#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "tests/support/temporary_folder.h"

namespace {
std::vector<std::string> synced_folders;  // by fsync below
}

// In the place of the C library's: it notes which folders are synced.
extern "C" int fsync(int file) {
  struct stat status {};
  if (::fstat(file, &status) == 0 && S_ISDIR(status.st_mode)) {
    std::error_code ignored;
    synced_folders.push_back(
        std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file), ignored).string());
  }
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace moonshard::records {
namespace {

TEST(AtomicFile, ReplacesTheWholeFile) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "a.json";
  write_file_atomically(file, "first");
  write_file_atomically(file, "second");
  EXPECT_EQ(read_text_file(file, 100), "second");
}

// With an umask that would let everybody read and write.
TEST(AtomicFile, PrivateFilesAndFoldersAreSoFromTheirCreation) {
  const TemporaryFolder folder;
  const auto inner = folder.path() / "a" / "b";
  const mode_t before = ::umask(0);
  create_private_folders(inner);
  write_file_atomically(inner / "private", "x", Access::Private);
  write_file_atomically(inner / "shared", "x");
  StagedFile staged(inner / "staged", StagedFile::OnInterrupt::Stop, Access::Private);
  ::umask(before);
  const auto mode = [](const std::filesystem::path& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 0777;
  };
  EXPECT_EQ(mode(inner.parent_path()), 0700u);
  EXPECT_EQ(mode(inner), 0700u);
  EXPECT_EQ(mode(inner / "private"), 0600u);
  EXPECT_EQ(mode(inner / "shared"), 0644u);
  for (const auto& entry : std::filesystem::directory_iterator(inner)) {
    if (is_temporary_name(entry.path().filename().string())) {
      EXPECT_EQ(mode(entry.path()), 0600u) << "also while it is written";
    }
  }
  create_private_folders(inner);  // there already
  EXPECT_THROW(create_private_folders(inner / "private" / "below"), IoError);
}

// A child writes numbered results and reports each one that was acknowledged; it is killed at a
// random moment. The file must be whole and no older than the last acknowledged one.
TEST(AtomicFile, SurvivesAKillAtAnyMoment) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "result.json";
  std::mt19937 random(1);
  int kills_with_result = 0;
  for (int trial = 0; trial < 60; ++trial) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      for (int i = 1;; ++i) {
        const std::string filler(static_cast<size_t>(i % 7) * 5000, 'x');
        write_file_atomically(file, to_text(Json{{"number", i}, {"filler", filler}}));
        if (::write(pipe_ends[1], &i, sizeof i) < 0) ::_exit(1);
      }
    }
    ::close(pipe_ends[1]);
    ::usleep(static_cast<useconds_t>(random() % 60000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    int acknowledged = 0, number = 0;
    while (::read(pipe_ends[0], &number, sizeof number) == sizeof number) acknowledged = number;
    ::close(pipe_ends[0]);
    if (acknowledged == 0) continue;
    ++kills_with_result;
    const Json whole = read_json_file(file);  // throws if torn
    EXPECT_GE(whole["number"].get<int>(), acknowledged);
    sweep_stale_temporaries(folder.path());
    int files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
      ++files;
    EXPECT_EQ(files, 1) << "a stale temporary is left";
    std::filesystem::remove(file);
  }
  EXPECT_GT(kills_with_result, 10);
}

TEST(Folders, AreSyncedIntoTheFolderAboveThem) {
  const TemporaryFolder folder;
  create_folders(folder.path(), Access::Shared);  // who made those above it may have been killed
  synced_folders.clear();
  create_folders(folder.path() / "a/b", Access::Shared);
  EXPECT_EQ(synced_folders, (std::vector<std::string>{folder.path(), folder.path() / "a"}));
  create_private_folders(folder.path() / "a/b/c");
  EXPECT_EQ(synced_folders.back(), folder.path() / "a/b");
  create_folders(folder.path() / "a/b/c", Access::Shared);
  EXPECT_EQ(synced_folders.size(), 3u);  // none is new
}

// Its maker may have been killed before it was synced: a power cut would take it with all in it.
TEST(Folders, OneThatIsThereIsSyncedIntoTheFolderAboveItOnce) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "left");
  synced_folders.clear();
  create_folders(folder.path() / "left", Access::Shared);
  ASSERT_FALSE(synced_folders.empty());
  EXPECT_EQ(synced_folders.back(), folder.path());
  synced_folders.clear();
  create_folders(folder.path() / "left", Access::Shared);
  EXPECT_TRUE(synced_folders.empty());
}

// RLIMIT_FSIZE makes write() fail as a full disk does, in the middle of the file.
TEST(AtomicFile, AFullDiskLeavesTheOldFileAndSaysSo) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "a.json";
  write_file_atomically(file, "old");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomically(file, std::string(100'000, 'y'));
    } catch (const IoError& error) {
      ::_exit(std::string(error.what()).find("a.json: cannot write: ") != std::string::npos ? 42
                                                                                            : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(read_text_file(file, 100), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "the temporary is left";
}

TEST(AtomicFile, AFolderThatIsNotThereIsAClearError) {
  const TemporaryFolder folder;
  try {
    write_file_atomically(folder.path() / "absent" / "a.json", "x");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("cannot create: No such file or directory"));
  }
}

TEST(AtomicFile, APipeIsNotReplaced) {
  const TemporaryFolder folder;
  const std::filesystem::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(write_file_atomically(pipe, "x"), IoError);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(AtomicFile, SweepsOnlyWhatDeadWritersLeft) {
  const TemporaryFolder folder;
  const std::string mark = ".moonshard-tmp.";
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  std::ofstream(folder.path() / ("a.json" + mark + std::to_string(dead) + ".0")) << "x";
  std::ofstream(folder.path() / ("b.json" + mark + std::to_string(::getpid()) + ".0")) << "x";
  std::ofstream(folder.path() / "c.json") << "x";
  EXPECT_EQ(sweep_stale_temporaries(folder.path()), 1);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "c.json"));
  EXPECT_TRUE(is_temporary_name("b.json" + mark + "1.0"));
}

TEST(AtomicFile, SweepsWhatOneLeftWhoseEndNobodyHasAskedForYet) {
  const TemporaryFolder folder;
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  siginfo_t how{};
  ::waitid(P_PID, static_cast<id_t>(ended), &how, WEXITED | WNOWAIT);
  std::ofstream(folder.path() / fmt::format("a.json.moonshard-tmp.{}.0", ended)) << "x";
  EXPECT_EQ(sweep_stale_temporaries(folder.path()), 1);
  ::waitpid(ended, nullptr, 0);
}

TEST(AtomicFile, SweepsWhatWasLeftByOneWhoseNumberIsAnothersNow) {
  const TemporaryFolder folder;
  const auto name = folder.path() / ("a.json.moonshard-tmp." + std::to_string(::getpid()) + ".0");
  std::ofstream(name) << "x";
  std::filesystem::last_write_time(
      name, std::filesystem::file_time_type::clock::now() - std::chrono::hours(24 * 365));
  EXPECT_EQ(sweep_stale_temporaries(folder.path()), 1);
}

}  // namespace
}  // namespace moonshard::records
