// Figures, not a test: the update in host memory in GB/s, beside a copy's.
//   bench_fused_update [million elements] [threads]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/common/host_threads.h"
#include "kernels/counter_noise/counter_noise.h"
#include "kernels/fused_update/fused_update.h"
#include "kernels/secure_noise/secure_noise.h"
#include "kernels/split_float/split_float.h"

namespace moonshard::kernels {
namespace {

constexpr int kRepeats = 7;

template <class Work>
double best_seconds(const Work& work) {
  double best = 1e30;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

void report(const char* what, int64_t count, double bytes_per_element, double seconds) {
  const auto elements = static_cast<double>(count);
  std::printf("%-44s %9.1f ms %8.1f GB/s %9.0f million/s\n", what, seconds * 1e3,
              bytes_per_element * elements / seconds / 1e9, elements / seconds / 1e6);
}

void bench_copy(int64_t count) {
  const at::Tensor to = at::zeros({count}), from = at::ones({count});
  constexpr int64_t kPiece = 1 << 16;
  report("copy of float32", count, 8, best_seconds([&] {
           share_pieces((count + kPiece - 1) / kPiece, [&](int64_t piece) {
             const int64_t begin = piece * kPiece, here = std::min(kPiece, count - begin);
             memcpy(to.data_ptr<float>() + begin, from.const_data_ptr<float>() + begin,
                    static_cast<size_t>(here) * sizeof(float));
           });
         }));
}

void bench_noise(int64_t count, const ChaChaKey& key) {
  at::Tensor target = at::zeros({count});
  report("secret noise added in place", count, 8, best_seconds([&] {
           add_secure_noise(target, 1, {key, 1, 2});
         }));
  report("reproducible noise added in place", count, 8, best_seconds([&] {
           add_counter_noise(target, 1, {5, 1, 2});
         }));
}

void bench_update(int64_t count, const ChaChaKey& key, UpdateKind kind, bool split) {
  const bool adam = kind == UpdateKind::AdamW;
  UpdatePart part;
  part.value = at::randn({count});
  part.grad = at::randn({count});
  if (adam) part.first_moment = at::zeros({count});
  if (adam) part.second_moment = at::zeros({count});
  part.steps = 2;
  if (split) {
    const at::Tensor whole = part.value;
    part.value = at::empty({count}, at::kBFloat16);
    part.low = at::empty({count}, at::kShort);
    split_float(whole, part.value, part.low);
  }
  UpdateRule rule;
  rule.kind = kind;
  rule.lr = 1e-6;
  for (const char* noise : {"no noise", "reproducible noise", "secret noise"}) {
    UpdateNoise told;
    told.denominator = 6;
    if (noise[0] != 'n') told.std = 1e-3;
    if (noise[0] == 's') told.secret = &key;
    char what[80];
    std::snprintf(what, sizeof what, "%s, %s, %s", adam ? "AdamW" : "SGD",
                  split ? "values in halves" : "float32", noise);
    report(what, count, adam ? 28 : 12, best_seconds([&] {
             std::vector<UpdatePart> parts{part};
             fused_update(parts, rule, told);
           }));
  }
}

void bench_all(int64_t count) {
  ChaChaKey key;
  key.word[0] = 7;
  std::printf("%lld elements, %d threads, best of %d\n", static_cast<long long>(count),
              at::get_num_threads(), kRepeats);
  bench_copy(count);
  bench_noise(count, key);
  for (const UpdateKind kind : {UpdateKind::Sgd, UpdateKind::AdamW})
    for (const bool split : {false, true}) bench_update(count, key, kind, split);
}

}  // namespace
}  // namespace moonshard::kernels

int main(int argc, char** argv) {
  const int64_t millions = argc > 1 ? std::atoll(argv[1]) : 64;
  if (argc > 2) at::set_num_threads(std::atoi(argv[2]));
  moonshard::kernels::bench_all(millions * 1'000'000);
  return 0;
}
