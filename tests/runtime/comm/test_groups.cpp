// Groups of ranks whose collectives are started by several threads of one process, as those of a
// checkpoint are that is written behind the training; and groups of a fake world, which share a
// port.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/thread_ranks.h"

namespace moonshard::comm {
namespace {

// The first collective of every group, on eight threads at once. A table of LibTorch's that had no
// lock broke in one of some ten rounds (leave_watching_to_us).
TEST(GroupsOfThreads, MayAllBeginAtOnce) {
  constexpr int kGroups = 4, kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    run_thread_ranks(2, [&](const std::shared_ptr<World>& world) {
      std::vector<std::shared_ptr<Communicator>> groups;
      for (int i = 0; i < kGroups; ++i)
        groups.push_back(world->group("group " + std::to_string(i), c10::kCPU));
      std::vector<std::thread> users;
      for (const auto& group : groups) {
        users.emplace_back([&group] {
          const at::Tensor sum = at::full({3}, group->rank() + 1);
          group->all_reduce(sum, "numbers").wait();
          EXPECT_TRUE(at::equal(sum, at::full({3}, 3)));
        });
      }
      for (std::thread& user : users) user.join();
    });
  }
}

// HSDP's: those that hold a model together, and those that hold the same part.
TEST(GroupsOfAFakeWorld, ShareOnePort) {
  using Clock = std::chrono::steady_clock;
  const auto world = make_world("fake:4", "ethernet10");
  const auto parts = world->part_group("parts", c10::kCPU, 0, 2);
  const auto copies = world->part_group("copies", c10::kCPU, 0, 2);
  const at::Tensor sum = at::zeros({int64_t{1} << 25}, at::kFloat);
  const double alone_s = static_cast<double>(sum.nbytes()) / 1.1e9;  // a ring of two sends it once
  const auto seconds = [&](const std::shared_ptr<Communicator>& second) {
    const auto began = Clock::now();
    Pending first = parts->all_reduce(sum, "first"), other = second->all_reduce(sum, "other");
    first.wait();
    other.wait();
    return std::chrono::duration<double>(Clock::now() - began).count();
  };
  EXPECT_GE(seconds(copies), 2 * alone_s) << "at the same time";
  EXPECT_GE(seconds(parts), 2 * alone_s) << "of one group";
  const auto other_world = make_world("fake:4", "ethernet10")->part_group("own", c10::kCPU, 0, 2);
  EXPECT_LT(seconds(other_world), 1.8 * alone_s) << "through a port of its own";
}

}  // namespace
}  // namespace moonshard::comm
