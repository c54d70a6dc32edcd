// What becomes of Kineto's file: rank and subject are added, and a file that is larger than the
// memory at hand is no trouble.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/profile/memory.h"
#include "runtime/profile/trace.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::profile {
namespace {

namespace fs = std::filesystem;

std::string text_in(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(TraceFile, GetsRankAndSubject) {
  const TemporaryFolder folder;
  const fs::path raw = folder.path() / "raw", path = folder.path() / "trace.json";
  std::ofstream(raw) << "{\"traceEvents\": [" << std::string(3 << 20, ' ') << "{\"ph\": \"X\"}]}";
  add_about_trace(raw, path, {1, 4, "gloo", "a \"tiny\" model"});
  const Json trace = parse_json(text_in(path), "trace");
  EXPECT_EQ(trace["distributedInfo"]["rank"], 1);
  EXPECT_EQ(trace["moonshard"]["what"], "a \"tiny\" model");
  EXPECT_EQ(trace["traceEvents"].size(), 1u);
  std::ofstream(raw, std::ios::trunc).close();
  EXPECT_THROW(add_about_trace(raw, folder.path() / "other.json", {}), IoError);
  EXPECT_FALSE(fs::exists(folder.path() / "other.json"));
}

// The most memory that this process has had since the last call.
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  int64_t kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmHWM:") status >> kib;
  std::ofstream("/proc/self/clear_refs") << 5;
  return kib << 10;
}

// A sparse file of zeros behind its first brace: it is not held, whole or compressed.
TEST(TraceFile, IsNotHeldInMemory) {
  const TemporaryFolder folder;
  const fs::path raw = folder.path() / "raw";
  std::ofstream(raw) << "{";
  fs::resize_file(raw, 256 << 20);
  peak_resident_bytes();
  const int64_t before = resident_set_bytes();
  add_about_trace(raw, folder.path() / trace_file_name(0), {});
  EXPECT_LT(peak_resident_bytes() - before, 64 << 20);
  EXPECT_GT(fs::file_size(folder.path() / trace_file_name(0)), 100'000u);
}

}  // namespace
}  // namespace moonshard::profile
