// What machine and control groups leave free, from files as the kernel writes them, and what the
// CPU allocator makes of it on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/profile/host_memory.h"
#include "runtime/profile/memory.h"
#include "runtime/profile/out_of_memory.h"
#include "runtime/profile/phases.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::profile {
namespace {

constexpr int64_t kMiB = 1 << 20;

class HostMemory : public testing::Test {
 protected:
  HostMemory() {
    write("proc/meminfo",
          "MemTotal:       16000000 kB\nMemFree:          100000 kB\n"
          "MemAvailable:    8388608 kB\nSwapFree:              0 kB\n");
  }
  void write(const std::string& name, const std::string& text) const {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void group_v2(const std::string& name, const std::string& max, int64_t current) const {
    write("sys/fs/cgroup" + name + "/memory.max", max + "\n");
    write("sys/fs/cgroup" + name + "/memory.current", std::to_string(current) + "\n");
    write("sys/fs/cgroup" + name + "/memory.stat",
          "anon 1\ninactive_file 1048576\nactive_file 2097152\nslab_reclaimable 1048576\n");
  }
  FreeHostMemory read() const { return free_host_memory(folder_.path()); }
  TemporaryFolder folder_;
};

TEST_F(HostMemory, IsTheMachinesWithoutControlGroups) {
  EXPECT_EQ(read().bytes, 8192 * kMiB);
  EXPECT_EQ(read().bound, "the machine");
  write("proc/meminfo", "MemAvailable: 1024 kB\nSwapFree: 1024 kB\n");
  EXPECT_EQ(read().bytes, 2 * kMiB);
  write("proc/meminfo", "nothing known\n");
  EXPECT_EQ(read().bytes, -1);
}

TEST_F(HostMemory, IsTheTightestGroupsWithItsCachesInVersion2) {
  write("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  group_v2("/slurm", std::to_string(4096 * kMiB), 100 * kMiB);
  group_v2("/slurm/job_7", std::to_string(1024 * kMiB), 1000 * kMiB);
  group_v2("/slurm/job_7/step_0", "max", 900 * kMiB);
  EXPECT_EQ(read().bytes, 28 * kMiB);  // 24 and 4 of caches
  EXPECT_EQ(read().bound, "the control group /slurm/job_7");
  // Inside a container the path may begin above what is mounted.
  write("proc/self/cgroup", "0::/outside/of/here\n");
  group_v2("", std::to_string(512 * kMiB), 500 * kMiB);
  EXPECT_EQ(read().bytes, 16 * kMiB);
}

TEST_F(HostMemory, IsTheTightestGroupsInVersion1) {
  write("proc/self/cgroup", "5:devices:/a\n4:cpu,memory:/a/b\n0::/\n");
  const std::string folder = "sys/fs/cgroup/memory/a/";
  write(folder + "memory.limit_in_bytes", std::to_string(64 * kMiB));
  write(folder + "memory.usage_in_bytes", std::to_string(60 * kMiB));
  write(folder + "memory.stat", "inactive_file 7\ntotal_inactive_file 1048576\n");
  write(folder + "b/memory.limit_in_bytes", "9223372036854771712");  // none
  write(folder + "b/memory.usage_in_bytes", "1048576");
  EXPECT_EQ(read().bytes, 5 * kMiB);
  EXPECT_EQ(read().bound, "the control group /a");
}

// Nothing of it is written to: without the check the system grants each piece, and kills later.
TEST(HostMemoryLimit, TheCpuAllocatorRefusesWhatDoesNotFitAndSaysPhaseAskedAndFree) {
  install_cpu_memory_hook();
  const int64_t free = free_host_memory().bytes;
  ASSERT_GT(free, 0);
  const int64_t piece = free / 10 * 4;
  std::vector<at::Tensor> held;
  const OutOfMemoryWatch watch;
  set_current_phase("forward");
  std::string error;
  try {
    for (int i = 0; i < 4; ++i) held.push_back(at::empty({piece}, at::kByte));
  } catch (const OutOfMemoryError& problem) {
    error = problem.what();
    EXPECT_EQ(problem.bytes_asked, piece);
  }
  set_current_phase("");
  EXPECT_EQ(held.size(), 2u);  // four tenths and four tenths
  EXPECT_THAT(error, testing::HasSubstr("free"));
  ASSERT_TRUE(watch.seen().has_value());
  EXPECT_EQ(watch.seen()->phase, "forward");
  EXPECT_EQ(watch.seen()->bytes_asked, piece);
  EXPECT_GT(watch.seen()->bytes_free, 0);
  EXPECT_LT(watch.seen()->bytes_free, piece);
  held.clear();
  EXPECT_NO_THROW(at::empty({piece}, at::kByte));
}

}  // namespace
}  // namespace moonshard::profile
