// The update in host memory beside its reference: formats, rules, noises, ends of tiles, threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>

#include "kernels/common/host_threads.h"
#include "kernels/counter_noise/counter_noise.h"
#include "kernels/fused_update/fused_update_cpu.h"
#include "kernels/secure_noise/secure_noise.h"
#include "tests/kernels/update_parts.h"

namespace moonshard::kernels {
namespace {

ChaChaKey some_key() {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = 11 + 0x01030507u * i;
  return key;
}

class Threads {
 public:
  explicit Threads(int number) : before_(at::get_num_threads()) { at::set_num_threads(number); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

constexpr UpdateKind kAllKinds[] = {UpdateKind::Replace, UpdateKind::Sgd, UpdateKind::Momentum,
                                    UpdateKind::Adam, UpdateKind::AdamW};

// kShort stands for float32 in halves.
std::vector<UpdatePart> parts_in(at::ScalarType type, UpdateKind kind, const Sources& from) {
  return type == at::kShort ? in_halves(make_parts(at::kFloat, kind, from))
                            : make_parts(type, kind, from);
}

TEST(FusedUpdateCpu, EqualsTheReference) {
  const ChaChaKey key = some_key();
  const Sources sources[] = {{at::kFloat, {}}, {{}, at::kHalf},     {at::kFloat, at::kBFloat16},
                             {{}, {}},         {at::kBFloat16, {}}, {at::kHalf, {}},
                             {at::kDouble, {}}};
  for (const at::ScalarType type :
       {at::kFloat, at::kBFloat16, at::kDouble, at::kShort, at::kHalf}) {
    for (const UpdateKind kind : kAllKinds) {
      for (const Sources& from : sources) {
        for (const UpdateNoise& noise :
             {UpdateNoise{0, 4, 0, 0}, UpdateNoise{1.5, 4, 42, 7}, UpdateNoise{1.5, 3, 42, 7, &key},
              UpdateNoise{0, 1, 0, 0}}) {
          const auto parts = parts_in(type, kind, from);
          auto want = copied(parts, c10::kCPU), got = copied(parts, c10::kCPU);
          fused_update_ref(want, rule_of(kind), noise);
          fused_update_cpu(got, rule_of(kind), noise);
          // Where the reference rounds a gradient to 8 bits, the kernel does not.
          const double relative = type == at::kBFloat16 || type == at::kHalf ? 1.6e-2 : 2e-6;
          for (size_t i = 0; i < parts.size(); ++i) {
            const auto equal = [&](const at::Tensor& a, const at::Tensor& b) {
              return !a.defined() ||
                     at::allclose(a.to(at::kDouble), b.to(at::kDouble), relative, relative);
            };
            EXPECT_TRUE(equal(value_of(got[i]), value_of(want[i])) &&
                        equal(got[i].first_moment, want[i].first_moment) &&
                        equal(got[i].second_moment, want[i].second_moment))
                << c10::toString(type) << " rule " << static_cast<int>(kind) << " part " << i
                << " std " << noise.std << (noise.secret != nullptr ? " secret" : "");
          }
        }
      }
    }
  }
}

// The number that noise is added to is the gradient, and its rounding is the noise's own.
TEST(FusedUpdateCpu, HasTheNoiseOfTheSeparatePassToTheLastBit) {
  const ChaChaKey key = some_key();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const auto parts = make_parts(type, UpdateKind::Replace, {type, {}});
    for (const bool secret : {false, true}) {
      auto got = copied(parts, c10::kCPU);
      fused_update_cpu(got, rule_of(UpdateKind::Replace), {1.5, 3, 42, 7, secret ? &key : nullptr});
      for (size_t i = 0; i < parts.size(); ++i) {
        at::Tensor want = parts[i].grad.clone();
        if (secret) {
          add_secure_noise(want, 1.5, {key, 7, parts[i].parameter}, parts[i].first_element);
        } else {
          add_counter_noise(want, 1.5, {42, 7, parts[i].parameter}, parts[i].first_element);
        }
        EXPECT_TRUE(at::equal(got[i].value, want.div_(3))) << i << (secret ? " secret" : "");
      }
    }
  }
}

// Ranks cut parameters anywhere, and threads cut parts: an element's result is its own.
TEST(FusedUpdateCpu, AnElementDoesNotDependOnWhereItsPartBeginsNorOnThreads) {
  const ChaChaKey key = some_key();
  const int64_t count = 150'001;
  for (const UpdateKind kind : {UpdateKind::Sgd, UpdateKind::AdamW}) {
    for (const bool secret : {false, true}) {
      UpdatePart whole;
      whole.value = at::randn({count});
      whole.grad = at::randn({count});
      whole.first_moment = at::randn({count});
      whole.second_moment = at::rand({count});
      whole.steps = 2;
      whole.parameter = 9;
      const UpdateNoise noise{0.7, 5, 42, 7, secret ? &key : nullptr};
      const auto updated = [&](const std::vector<int64_t>& cuts, int threads) {
        const Threads as_many(threads);
        UpdatePart own = copied({whole}, c10::kCPU)[0];
        std::vector<UpdatePart> parts;
        for (size_t i = 0; i + 1 < cuts.size(); ++i) {
          UpdatePart part = own;
          for (at::Tensor* tensor :
               {&part.value, &part.grad, &part.first_moment, &part.second_moment})
            *tensor = tensor->slice(0, cuts[i], cuts[i + 1]);
          part.first_element = cuts[i];
          parts.push_back(part);
        }
        fused_update_cpu(parts, rule_of(kind), noise);
        return at::cat({own.value, own.first_moment, own.second_moment});
      };
      const at::Tensor want = updated({0, count}, 1);
      EXPECT_TRUE(at::equal(updated({0, count}, 3), want));
      EXPECT_TRUE(at::equal(updated({0, 1, 511, 512, 513, 70'007, 140'000, count}, 2), want));
    }
  }
}

TEST(FusedUpdateCpu, KeepsNumbersThatAreNotFinite) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kShort}) {
    std::vector<UpdatePart> parts(1);
    parts[0].value = at::zeros({4});
    parts[0].grad = at::tensor({NAN, INFINITY, -INFINITY, 1.0f});
    if (type == at::kShort) parts = in_halves(parts);
    if (type == at::kBFloat16) parts[0].value = parts[0].value.to(type);
    fused_update_cpu(parts, rule_of(UpdateKind::Sgd), {});
    const at::Tensor got = value_of(parts[0]).to(at::kFloat);
    EXPECT_TRUE(std::isnan(got[0].item<float>()));
    EXPECT_EQ(got[1].item<float>(), -INFINITY);
    EXPECT_EQ(got[2].item<float>(), INFINITY);
  }
}

TEST(HostThreads, EveryPieceIsDoneOnceAndErrorsArrive) {
  const Threads two(2);
  std::vector<std::atomic<int>> done(1000);
  share_pieces(1000, [&](int64_t piece) { ++done[static_cast<size_t>(piece)]; });
  for (const auto& times : done) EXPECT_EQ(times, 1);
  share_pieces(0, [](int64_t) { FAIL(); });
  EXPECT_THROW(share_pieces(50,
                            [](int64_t piece) {
                              if (piece == 20) throw std::runtime_error("piece 20");
                            }),
               std::runtime_error);
  // Work that is shared inside of a piece stays on its thread.
  std::atomic<int> inner{0};
  share_pieces(4, [&](int64_t) { share_pieces(5, [&](int64_t) { ++inner; }); });
  EXPECT_EQ(inner, 20);
}

}  // namespace
}  // namespace moonshard::kernels
