// kill -9 at random moments while results are written: what is there is whole, and what was
// acknowledged is still there. MOONSHARD_KILLS sets the number of kills (60).
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "runtime/base/files.h"
#include "runtime/records/reader.h"
#include "runtime/records/writer.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

int num_kills() {
  const char* text = std::getenv("MOONSHARD_KILLS");
  return text != nullptr ? std::atoi(text) : 60;
}

// A record of some size whose parts must all be of one writing.
Json record_of(int64_t number) {
  Json samples = Json::array();
  for (int i = 0; i < 4000; ++i) samples.push_back(number);
  return {{"schema_version", 1},
          {"status", "ok"},
          {"id", "aa"},
          {"number", number},
          {"metrics", {{"median_time_ms", number}}},
          {"samples", std::move(samples)}};
}

// Writes results, status words and the index for ever; says in a pipe what it has finished.
[[noreturn]] void write_for_ever(RunFolderWriter writer, int64_t number, int acknowledge) {
  while (true) {
    ++number;
    writer.write_result("aa", record_of(number));
    if (::write(acknowledge, &number, sizeof number) != sizeof number) ::_exit(1);
    writer.write_status("aa", "ok");
    writer.update_index("aa");
  }
}

int64_t last_acknowledged(int pipe, int64_t before) {
  for (int64_t number = 0; ::read(pipe, &number, sizeof number) == sizeof number;) before = number;
  return before;
}

TEST(ResultKills, NoFileIsTornAndNoAcknowledgedResultIsLost) {
  const TemporaryFolder root;
  RunFolderWriter writer = RunFolderWriter::create(root.path(), "kills");
  writer.write_environment({{"schema_version", 1}});
  writer.write_sweep("kills", Json::object(), {"mode"},
                     {{"aa", {{"mode", "none"}}, "none_result.json"}});
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> wait_us(0, 30000);
  int64_t acknowledged = 0;
  int temporaries = 0, cut_off = 0;
  const int kills = num_kills();
  for (int kill = 0; kill < kills; ++kill) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(ends[0]);
      write_for_ever(writer, acknowledged, ends[1]);
    }
    ::close(ends[1]);
    ::usleep(static_cast<useconds_t>(wait_us(random)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
    const int64_t before = acknowledged;
    acknowledged = last_acknowledged(ends[0], acknowledged);
    ::close(ends[0]);

    std::error_code not_there;  // killed before it had made the folder
    for (const auto& entry : fs::directory_iterator(writer.point_folder("aa"), not_there))
      temporaries += is_temporary_name(entry.path().filename().string()) ? 1 : 0;
    const RunFolder run = load_run_folder(writer.path());
    ASSERT_TRUE(run.problems.empty()) << run.problems[0];
    if (acknowledged == 0) continue;  // killed before its first result
    Json result = run.points[0].result;
    EXPECT_EQ(result.erase("digest"), 1u);
    ASSERT_EQ(run.points[0].status, "ok");
    const int64_t number = result.at("number").get<int64_t>();
    // The one that was being acknowledged may be there already; an older one never.
    ASSERT_GE(number, acknowledged);
    ASSERT_LE(number, acknowledged + 1);
    ASSERT_EQ(result, record_of(number)) << "parts of two writings";
    cut_off += acknowledged == before ? 1 : 0;
    writer = RunFolderWriter::open(writer.path());
    for (const auto& entry : fs::directory_iterator(writer.point_folder("aa")))
      ASSERT_FALSE(is_temporary_name(entry.path().filename().string())) << "not swept away";
  }
  // A test that always killed between two writings would prove nothing.
  EXPECT_GT(temporaries, 0);
  EXPECT_LT(cut_off, kills);
  std::printf("%d kills, %lld results acknowledged, %d temporaries of dead writers swept away\n",
              kills, static_cast<long long>(acknowledged), temporaries);
}

}  // namespace
}  // namespace moonshard::records
