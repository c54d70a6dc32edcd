#include "runtime/privacy/run_secret.h"

#include <ATen/ATen.h>

namespace moonshard::privacy {

std::shared_ptr<const kernels::ChaChaKey> shared_secret(comm::World& world) {
  const auto key = std::make_shared<kernels::ChaChaKey>(draw_secret_key());
  if (world.size() == 1 || world.is_fake()) return key;
  const auto group = world.group("statistics", c10::kCPU);
  at::Tensor own = at::empty({8}, at::kLong);
  for (int64_t i = 0; i < 8; ++i) own.data_ptr<int64_t>()[i] = static_cast<int64_t>(key->word[i]);
  const at::Tensor all = at::empty({8 * world.size()}, at::kLong);
  group->all_gather(all, own, "a secret").wait();
  // Keys of all ranks are XORed: one weak generator is harmless.
  for (int64_t i = 0; i < 8; ++i) key->word[i] = 0;
  for (int64_t i = 0; i < all.numel(); ++i)
    key->word[i % 8] ^= static_cast<uint32_t>(all.data_ptr<int64_t>()[i]);
  return key;
}

RandomWords sampling_words(comm::World& world, int64_t seed, bool secure) {
  return secure ? RandomWords(*shared_secret(world)) : RandomWords(static_cast<uint64_t>(seed));
}

}  // namespace moonshard::privacy
