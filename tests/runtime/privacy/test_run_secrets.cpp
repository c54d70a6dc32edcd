// What a run's noise and samples are drawn from: one secret of all ranks, or a seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/privacy/account.h"
#include "tests/support/thread_ranks.h"

namespace moonshard::privacy {
namespace {

using Words = std::vector<uint32_t>;

Words words_of(const kernels::ChaChaKey& key) {
  return Words(std::begin(key.word), std::end(key.word));
}

/// The secrets that the ranks of one job get, by call: two of each.
std::vector<std::vector<Words>> secrets_of_ranks(int ranks) {
  std::vector<std::vector<Words>> secrets(2);
  std::mutex mutex;
  run_thread_ranks(ranks, [&](const std::shared_ptr<comm::World>& world) {
    for (std::vector<Words>& of_call : secrets) {
      const auto secret = shared_secret(*world);
      const std::lock_guard lock(mutex);
      of_call.push_back(words_of(*secret));
    }
  });
  return secrets;
}

TEST(RunSecrets, AreTheSameOnAllRanksAndNeverAgain) {
  std::vector<uint32_t> seen;
  for (const int ranks : {2, 3}) {
    for (const std::vector<Words>& of_call : secrets_of_ranks(ranks)) {
      ASSERT_EQ(of_call.size(), static_cast<size_t>(ranks));
      for (const Words& secret : of_call) EXPECT_EQ(secret, of_call[0]);
      seen.insert(seen.end(), of_call[0].begin(), of_call[0].end());
    }
  }
  // A word that no rank's generator had a part in would be the same each time, and so would be
  // keys that cancel out.
  EXPECT_EQ(seen.size(), 32u);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

// A secret for samples costs a resumed run its place: it is taken where a claim rests on it alone.
TEST(RunSecrets, SamplesAreDrawnFromOneWhereAClaimRestsOnIt) {
  const auto world = comm::make_world("auto", "");
  const auto is_secret = [&](bool secure, const char* mode, const char* sampler) {
    const RandomWords words = sampling_words(*world, 17, secure, mode, sampler);
    if (!words.is_secret()) {
      EXPECT_EQ(words.word(1, 2, 3), RandomWords(uint64_t{17}).word(1, 2, 3));
    }
    return words.is_secret();
  };
  EXPECT_TRUE(is_secret(true, "ghost", "poisson"));
  EXPECT_FALSE(is_secret(false, "ghost", "poisson"));
  EXPECT_FALSE(is_secret(true, "none", "poisson"));
  EXPECT_FALSE(is_secret(true, "ghost", "shuffled"));
  EXPECT_TRUE(model_words(*world, 17, true).is_secret());
  EXPECT_EQ(model_words(*world, 17, false).word(1, 2, 3), RandomWords(uint64_t{17}).word(1, 2, 3));
  EXPECT_NE(model_words(*world, 17, true).word(1, 2, 3),
            model_words(*world, 17, true).word(1, 2, 3));
}

}  // namespace
}  // namespace moonshard::privacy
