// The kernel of secure_noise beside its reference. Skipped with a reason without a GPU.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/fused_update/fused_update.h"
#include "kernels/secure_noise/secure_noise.h"
#include "kernels/secure_noise/secure_noise_math.h"
#include "kernels/split_float/split_float.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/update_parts.h"

namespace moonshard::kernels {
namespace {

class SecureNoiseGpu : public OnGpu {};

TEST_F(SecureNoiseGpu, EqualsTheReferenceButForACell) {
  SecureStream stream;
  for (uint32_t i = 0; i < 8; ++i) stream.key.word[i] = 0x12345678u * (i + 1);
  stream.step = 9, stream.parameter = 4;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const int64_t first : {0, 1, 4099}) {
      const double std = 0.3;
      at::Tensor want = at::randn({100'003}, type), got = want.cuda();
      add_secure_noise_ref(want, std, stream, first);
      add_secure_noise(got, std, stream, first);
      // Radius and sine differ by up to 2e-6, which moves one sum in a few thousand into the next
      // cell.
      const at::Tensor cells = ((got.cpu() - want).to(at::kDouble) / secure_grid(std)).abs();
      EXPECT_LE(cells.max().item<double>(), 1.0) << c10::toString(type) << " " << first;
      EXPECT_LT(cells.gt(0.5).sum().item<int64_t>(), 100);
    }
  }
}

// The fused update draws the same noise, on the same grid, as the pass of its own.
TEST_F(SecureNoiseGpu, OfTheFusedUpdateIsTheSame) {
  SecureStream stream;
  for (uint32_t i = 0; i < 8; ++i) stream.key.word[i] = 0x9e3779b9u * (i + 1);
  stream.step = 3;
  const at::TensorOptions on_gpu = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  for (const int64_t first : {0, 4, 512, 1001}) {
    for (const int64_t count : {1, 513, 70'001}) {
      const double std = 0.3;
      at::Tensor grad = at::randn({count}, on_gpu), want = grad.clone();
      stream.parameter = 4;
      add_secure_noise(want, std, stream, first);
      std::vector<UpdatePart> parts(1);
      parts[0].value = at::zeros({count}, on_gpu);
      parts[0].grad = grad;
      parts[0].parameter = 4;
      parts[0].first_element = first;
      UpdateRule rule;
      rule.lr = -1;  // value = gradient
      UpdateNoise noise;
      noise.std = std;
      noise.step = 3;
      noise.secret = &stream.key;
      fused_update(parts, rule, noise);
      EXPECT_TRUE(at::equal(parts[0].value, want)) << first << " " << count;
      parts[0].value = at::zeros({count}, on_gpu.dtype(at::kBFloat16));
      parts[0].low = at::zeros({count}, on_gpu.dtype(at::kShort));
      fused_update(parts, rule, noise);
      EXPECT_TRUE(at::equal(joined_float(parts[0].value, parts[0].low), want)) << "in halves";
    }
  }
}

// As above with kept rows, in 16 bits with units or as they are: two are summed by another way than
// more.
TEST_F(SecureNoiseGpu, OfTheFusedUpdateWithRowsIsTheSame) {
  const at::TensorOptions on_gpu = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  SecureStream stream;
  stream.step = 5;
  stream.parameter = 2;
  UpdateRule rule;
  rule.lr = -1;  // value = gradient
  UpdateNoise noise;
  noise.std = 0.01;
  noise.step = 5;
  noise.secret = &stream.key;
  for (const bool units : {false, true}) {
    for (const int64_t num_rows : {1, 2, 3, 8, 9}) {
      for (const int64_t first : {0, 128, 640, 1001}) {
        const int64_t count = 70'001;
        at::Tensor factors = at::rand({num_rows}, on_gpu) + 0.1;
        const at::Tensor rows = at::randn({num_rows, count}, on_gpu).to(at::kHalf);
        if (num_rows > 2) {
          factors[1] = 0;
          rows[1].fill_(NAN);
        }
        if (units) factors = factors.unsqueeze(1) * at::rand({num_rows, 600}, on_gpu).add(0.1);
        at::Tensor want = add_weighted_rows({}, rows, factors, first);
        add_secure_noise(want, noise.std, stream, first);
        std::vector<UpdatePart> parts(1);
        parts[0].value = at::zeros({count}, on_gpu);
        parts[0].rows = rows;
        parts[0].row_factors = factors;
        parts[0].parameter = 2;
        parts[0].first_element = first;
        fused_update(parts, rule, noise);
        EXPECT_LT((parts[0].value - want).abs().max().item<double>(), 1e-5)
            << units << " " << num_rows << " " << first;
      }
    }
  }
}

// The same numbers at an address that allows no vectors: every element alone, instead of tiles on
// their way through shared memory.
at::Tensor at_odd_place(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::Tensor memory = at::empty({tensor.numel() + 1}, tensor.options());
  return memory.narrow(0, 1, tensor.numel()).view(tensor.sizes()).copy_(tensor);
}

TEST_F(SecureNoiseGpu, TilesAreUpdatedAsTheirElements) {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = 0x2545f491u * (i + 1);
  UpdateNoise noise{0.3, 5, 42, 7, &key};
  std::vector<Sources> sources = {{at::kFloat, {}}, {{}, at::kFloat}, {{}, at::kHalf}};
  sources.push_back({{}, at::kHalf, /*units=*/true});
  for (const UpdateKind kind : kKinds) {
    for (const Sources& from : sources) {
      for (const int64_t num_rows : {1, 2, 4, 9}) {
        for (const int format : {0, 1, 2}) {
          if (from.grad && num_rows > 1) continue;
          std::vector<UpdatePart> parts;
          for (const int64_t count : {513, 5000, 70'008}) {
            UpdatePart part =
                make_part(format == 1 ? at::kBFloat16 : at::kFloat, kind, from, count, num_rows);
            part.first_element = count == 5000 ? 64 : 0;
            parts.push_back(std::move(part));
          }
          if (format == 2) parts = in_halves(std::move(parts));
          std::vector<UpdatePart> tiles = copied(parts, at::kCUDA), alone = tiles;
          for (UpdatePart& part : alone)
            for (at::Tensor* tensor :
                 {&part.value, &part.low, &part.grad, &part.first_moment, &part.second_moment})
              *tensor = at_odd_place(*tensor);
          fused_update(tiles, rule_of(kind), noise);
          fused_update(alone, rule_of(kind), noise);
          for (size_t i = 0; i < tiles.size(); ++i) {
            SCOPED_TRACE(fmt::format("kind {} rows {} format {} part {}", static_cast<int>(kind),
                                     num_rows, format, i));
            EXPECT_TRUE(at::equal(value_of(tiles[i]), value_of(alone[i])));
            EXPECT_FALSE(at::equal(value_of(tiles[i]).cpu(), value_of(parts[i])));
            for (const auto moment : {&UpdatePart::first_moment, &UpdatePart::second_moment}) {
              if (!(tiles[i].*moment).defined()) continue;
              EXPECT_TRUE(at::equal(tiles[i].*moment, alone[i].*moment));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace moonshard::kernels
