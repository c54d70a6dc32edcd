#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <new>

#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/profile/memory.h"

namespace moonshard::profile {
namespace {

class Memory : public ::testing::Test {
 protected:
  void SetUp() override { install_cpu_memory_hook(); }
  const c10::Device cpu{c10::kCPU};
};

TEST_F(Memory, CountsEveryByteOfATensorAndItsPeak) {
  const int64_t before = read_memory(cpu).allocated_bytes;
  reset_peak_memory(cpu);
  {
    const at::Tensor tensor = at::empty({1000, 250});
    EXPECT_EQ(read_memory(cpu).allocated_bytes - before, 1'000'000);
  }
  EXPECT_EQ(read_memory(cpu).allocated_bytes, before);
  EXPECT_EQ(read_memory(cpu).max_allocated_bytes - before, 1'000'000);
}

TEST_F(Memory, SeesTemporariesOfOperations) {
  const at::Tensor a = at::ones({512, 512});
  reset_peak_memory(cpu);
  const int64_t before = read_memory(cpu).allocated_bytes;
  const at::Tensor sum = (a * 2 + a).sum();
  EXPECT_GE(read_memory(cpu).max_allocated_bytes - before, 2 * 512 * 512 * 4);
}

TEST_F(Memory, APeakWithinLeavesThatOfAllAsItIs) {
  reset_peak_memory(cpu);
  const int64_t before = read_memory(cpu).allocated_bytes;
  { const at::Tensor large = at::empty({3000}, at::kFloat); }
  {
    const PeakSince peak(cpu);
    { const at::Tensor small = at::empty({1000}, at::kFloat); }
    EXPECT_EQ(peak.allocated_bytes() - before, 4000);
  }
  EXPECT_EQ(read_memory(cpu).max_allocated_bytes - before, 12'000);
  const PeakSince peak(cpu);
  { const at::Tensor larger = at::empty({5000}, at::kFloat); }
  EXPECT_EQ(read_memory(cpu).max_allocated_bytes - before, 20'000);
  reset_peak_memory(cpu);
  EXPECT_EQ(read_memory(cpu).max_allocated_bytes, before);
}

TEST_F(Memory, DataIsAlignedAsLibTorchsKernelsExpect) {
  for (const int64_t size : {1, 7, 1000, 4097}) {
    const at::Tensor tensor = at::empty({size});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0u);
  }
}

TEST_F(Memory, ALimitMakesAllocationFailWithTheFigures) {
  set_cpu_memory_limit(read_memory(cpu).allocated_bytes + 1'000'000);
  try {
    const at::Tensor tensor = at::empty({1'000'000});
    ADD_FAILURE();
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.bytes_asked, 4'000'000);
    EXPECT_TRUE(says_out_of_memory(error.what())) << error.what();
  }
  set_cpu_memory_limit(0);
  EXPECT_NO_THROW(at::empty({1'000'000}));
}

// By their words an error of another rank, or of a record, is told to be one of memory.
TEST_F(Memory, WhateverRanOutIsToldByItsWords) {
  const std::bad_alloc none;
  const c10::OutOfMemoryError gpu(
      {"", "", 0}, "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has none");
  const c10::Error host({"", "", 0},
                        "DefaultCPUAllocator: can't allocate memory: you tried to "
                        "allocate 4096 bytes. Error code 12");
  for (const std::exception* error :
       {static_cast<const std::exception*>(&none), static_cast<const std::exception*>(&gpu),
        static_cast<const std::exception*>(&host)}) {
    const std::string text = out_of_memory_message(*error);
    EXPECT_TRUE(says_out_of_memory("rank 3: " + text)) << text;
  }
  EXPECT_FALSE(says_out_of_memory("of shared memory: too little"));
}

TEST_F(Memory, ResidentSetIsKnown) {
  EXPECT_GT(read_memory(cpu).rss_bytes, 1 << 20);
}

}  // namespace
}  // namespace moonshard::profile
