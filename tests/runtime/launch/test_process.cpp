#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/json.h"
#include "runtime/launch/process.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::launch {
namespace {

TEST(Process, OutputGoesToTheLogAndTheCodeComesBack) {
  const TemporaryFolder folder;
  const auto log = folder.path() / "log.txt";
  const ProcessResult result =
      run_process({"/bin/sh", "-c", "echo out; echo err >&2; exit 7"}, log, {});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(read_text_file(log, 1000), "out\nerr\n");
}

TEST(Process, ASignalIsNamed) {
  const TemporaryFolder folder;
  const ProcessResult result =
      run_process({"/bin/sh", "-c", "kill -9 $$"}, folder.path() / "log", {});
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_THAT(describe(result), ::testing::HasSubstr("signal 9"));
}

TEST(Process, AMissingProgramIsAClearError) {
  const TemporaryFolder folder;
  EXPECT_THROW(run_process({"/no/such/program"}, folder.path() / "log", {}), IoError);
}

TEST(Process, AnInterruptEndsTheWholeGroup) {
  const TemporaryFolder folder;
  const auto pid_file = folder.path() / "pid";
  std::thread asker([&] {
    while (!std::filesystem::exists(pid_file))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    request_interrupt();
  });
  // The grandchild must die, too.
  const std::string script = "sleep 60 & echo $! > " + pid_file.string() + ".new; mv " +
                             pid_file.string() + ".new " + pid_file.string() + "; wait";
  EXPECT_THROW(run_process({"/bin/sh", "-c", script}, folder.path() / "log", {}), Interrupted);
  asker.join();
  clear_interrupt();
  const pid_t grandchild = std::stoi(read_text_file(pid_file, 100));
  for (int i = 0; i < 200 && ::kill(grandchild, 0) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_NE(::kill(grandchild, 0), 0);
}

TEST(Process, AnErrorInTheTickEndsTheChild) {
  const TemporaryFolder folder;
  EXPECT_THROW(
      run_process({"/bin/sleep", "60"}, folder.path() / "log", [] { throw Error("stop"); }), Error);
}

}  // namespace
}  // namespace moonshard::launch
