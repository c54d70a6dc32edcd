// Groups of ranks whose collectives are started by several threads of one process, as those of a
// checkpoint are that is written behind the training.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace moonshard::comm
