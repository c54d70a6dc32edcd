// Linear and patch embedding: the gradient of sample b is G_b^T A_b, a sum of T outer products.
#include "kernels/clipped_sum/clipped_sum.h"
#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/profile/ledger.h"

namespace moonshard::privacy {
namespace {

// Default tile: small enough to be nothing beside the activations, large enough
// to be worth a call. A GPU needs more work in each.
int64_t position_tile(const at::Tensor& x) {
  return x.is_cpu() ? 256 : 1024;
}
int64_t width_tile(const at::Tensor& x) {
  return x.is_cpu() ? 512 : 2048;
}

at::Tensor gram(const at::Tensor& x, const at::Tensor& y, profile::Owner owner) {
  const profile::OwnerScope scope(owner);
  return wide_bmm(x, y.transpose(1, 2));
}

struct GramSums {
  at::Tensor value, magnitude;  ///< [B], with and without signs
};

GramSums gram_sums(const at::Tensor& a_gram, const at::Tensor& g_gram) {
  const at::Tensor product = a_gram * g_gram;
  return {product.flatten(1).sum(1, false, at::kDouble),
          product.abs_().flatten(1).sum(1, false, at::kDouble)};
}

// On the CPU as many samples at once as fit into a small room: many small products in one call, but
// one large one at a time, which keeps all cores busy by itself. A GPU gets all samples at once.
int64_t samples_at_a_time(const at::Tensor& x, int64_t bytes_per_sample) {
  constexpr int64_t kRoom = 1 << 20;
  if (!x.is_cpu()) return x.size(0);
  return std::clamp<int64_t>(kRoom / std::max<int64_t>(bytes_per_sample, 1), 1, x.size(0));
}

// With itself. A CPU makes 16-bit operands wide: once, not for each side of the product.
at::Tensor own_gram(const at::Tensor& x, profile::Owner owner) {
  const at::Tensor wide = x.is_cpu() ? at_least_float(x) : x;
  return gram(wide, wide, owner);
}

GramSums ghost_sums(const at::Tensor& a_BTi, const at::Tensor& g_BTo) {
  std::vector<at::Tensor> values, magnitudes;
  const int64_t B = a_BTi.size(0), T = a_BTi.size(1);
  const bool is_narrow = wide_type(a_BTi) != a_BTi.scalar_type();
  const int64_t copy = is_narrow ? T * std::max(a_BTi.size(2), g_BTo.size(2)) : 0;
  const int64_t step = samples_at_a_time(a_BTi, (3 * T * T + copy) * 4);
  for (int64_t b = 0; b < B; b += step) {
    const int64_t count = std::min(step, B - b);
    const GramSums sums =
        gram_sums(own_gram(a_BTi.narrow(0, b, count), profile::Owner::TemporariesAat),
                  own_gram(g_BTo.narrow(0, b, count), profile::Owner::TemporariesGgt));
    values.push_back(sums.value);
    magnitudes.push_back(sums.magnitude);
  }
  return {at::cat(values), at::cat(magnitudes)};
}

GramSums tiled_sums(const at::Tensor& a_BTi, const at::Tensor& g_BTo, int64_t tile) {
  const int64_t B = a_BTi.size(0), T = a_BTi.size(1);
  GramSums total{at::zeros({B}, a_BTi.options().dtype(at::kDouble)),
                 at::zeros({B}, a_BTi.options().dtype(at::kDouble))};
  const int64_t step = samples_at_a_time(a_BTi, 3 * std::min(tile, T) * std::min(tile, T) * 4);
  for (int64_t b = 0; b < B; b += step) {
    const int64_t count = std::min(step, B - b);
    const at::Tensor a = a_BTi.narrow(0, b, count), g = g_BTo.narrow(0, b, count);
    for (int64_t row = 0; row < T; row += tile) {
      const int64_t rows = std::min(tile, T - row);
      for (int64_t column = 0; column <= row; column += tile) {  // symmetric: the lower half twice
        const int64_t columns = std::min(tile, T - column);
        const GramSums sums = gram_sums(gram(a.narrow(1, row, rows), a.narrow(1, column, columns),
                                             profile::Owner::TemporariesAat),
                                        gram(g.narrow(1, row, rows), g.narrow(1, column, columns),
                                             profile::Owner::TemporariesGgt));
        const double times = column == row ? 1 : 2;
        total.value.narrow(0, b, count).add_(sums.value, times);
        total.magnitude.narrow(0, b, count).add_(sums.magnitude, times);
      }
    }
  }
  return total;
}

// Squares of G^T A's rows, `tile` rows of one sample at a time. No signs, so nothing cancels.
at::Tensor width_squares(const at::Tensor& a_BTi, const at::Tensor& g_BTo, int64_t tile) {
  const int64_t B = a_BTi.size(0), o = g_BTo.size(2);
  at::Tensor total = at::zeros({B}, a_BTi.options().dtype(at::kDouble));
  const int64_t rows = std::min(tile, o);
  const int64_t step = samples_at_a_time(a_BTi, rows * (a_BTi.size(1) + a_BTi.size(2)) * 4);
  for (int64_t b = 0; b < B; b += step) {
    const int64_t count = std::min(step, B - b);
    for (int64_t row = 0; row < o; row += rows) {
      const at::Tensor g =
          g_BTo.narrow(0, b, count).narrow(2, row, std::min(rows, o - row)).transpose(1, 2);
      const at::Tensor a = a_BTi.narrow(0, b, count);
      // For one sample mm, which reads the tile where it lies; bmm would copy it.
      total.narrow(0, b, count)
          .add_(row_squares(count == 1 ? wide_mm(g[0], a[0]).unsqueeze(0) : wide_bmm(g, a)));
    }
  }
  return total;
}

at::Tensor trusted(const GramSums& sums, const at::Tensor& a_BTi, const at::Tensor& g_BTo,
                   int64_t tile) {
  if (!sums.value.is_cpu()) return bounded_gram(sums.value, sums.magnitude, a_BTi.scalar_type());
  // Also what left the range of float32: infinity, and products too small to add up.
  const at::Tensor doubtful = (sums.magnitude > sums.value * kTrustedCancellation)
                                  .logical_or(sums.magnitude.isfinite().logical_not())
                                  .logical_or(sums.magnitude < 1e-30);
  if (!doubtful.any().item<bool>()) return sums.value;
  if (doubtful.all().item<bool>()) return width_squares(a_BTi, g_BTo, tile);  // no copy of all
  const at::Tensor rows = doubtful.nonzero().flatten();
  return sums.value.index_put(
      {rows}, width_squares(a_BTi.index_select(0, rows), g_BTo.index_select(0, rows), tile));
}

// The sum over positions of |a_t| |g_t|, and (sum of |a_t|)^2 + (sum of |g_t|)^2.
std::pair<at::Tensor, at::Tensor> lengths_of(const at::Tensor& a_BTi, const at::Tensor& g_BTo) {
  const auto lengths = [](const at::Tensor& x_BTd) {
    return at::linalg_vector_norm(at_least_float(x_BTd), 2, at::IntArrayRef{2});
  };
  const at::Tensor a_BT = lengths(a_BTi).to(at::kDouble), g_BT = lengths(g_BTo);
  const at::Tensor spread_B = a_BT.sum(1).square_().add_(g_BT.sum(1, false, at::kDouble).square_());
  return {a_BT.mul_(g_BT).sum(1), spread_B};
}

class LinearRule : public LayerRule {
 public:
  at::Tensor per_sample(const models::ParamLayer& layer, const at::Tensor& a,
                        const at::Tensor& g) const override {
    std::vector<int64_t> shape{a.size(0)};
    for (const int64_t size : layer.weight->value.sizes()) shape.push_back(size);
    return wide_bmm(as_positions(g).transpose(1, 2), as_positions(a)).view(shape);
  }

  at::Tensor squares(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                     const NormSettings& settings) const override {
    const at::Tensor a_BTi = as_positions(a), g_BTo = as_positions(g);
    if (a_BTi.size(1) == 1) {  // one outer product: its norm is the product of the two norms
      // In double: a factor that float32 lost would take the other, however large, with it.
      return wide_row_squares(a_BTi) * wide_row_squares(g_BTo);
    }
    const int64_t rows = settings.method == NormMethod::Width && settings.tile_size > 0
                             ? settings.tile_size
                             : width_tile(a_BTi);
    if (settings.method == NormMethod::Materialize)
      return LayerRule::squares(layer, a, g, settings);
    const auto [lengths_B, spread_B] = lengths_of(a_BTi, g_BTo);
    at::Tensor squares = norm_squares(a_BTi, g_BTo, rows, settings);
    if (wide_type(a_BTi) == at::kFloat && settings.method != NormMethod::Width)
      squares = squares + gram_underflow(spread_B, std::max(a_BTi.size(2), g_BTo.size(2)));
    return with_rounding_of_sum(squares, lengths_B, wide_type(a_BTi));
  }

 private:
  static at::Tensor norm_squares(const at::Tensor& a_BTi, const at::Tensor& g_BTo, int64_t rows,
                                 const NormSettings& settings) {
    switch (settings.method) {
      case NormMethod::Ghost:
        return trusted(ghost_sums(a_BTi, g_BTo), a_BTi, g_BTo, rows);
      case NormMethod::InputLength:
        return trusted(
            tiled_sums(a_BTi, g_BTo,
                       settings.tile_size > 0 ? settings.tile_size : position_tile(a_BTi)),
            a_BTi, g_BTo, rows);
      default:
        return width_squares(a_BTi, g_BTo, rows);
    }
  }

 public:
  void add_sum(at::Tensor& sum, const models::ParamLayer& layer, const at::Tensor& a,
               const at::Tensor& g, const at::Tensor& factors) const override {
    at::Tensor a_BTi = as_positions(a), g_BTo = as_positions(g);
    const auto shape = layer.weight->value.sizes();
    const bool narrow_format = wide_type(a_BTi) != a_BTi.scalar_type();
    if (factors.defined() && narrow_format && a_BTi.is_cuda()) {
      // A 16-bit operand times a factor would be rounded to 16 bits again: the factors are applied
      // to each sample's float32 product instead.
      const bool goes_on = sum.defined();
      if (!goes_on) sum = at::empty(shape, a_BTi.options().dtype(at::kFloat));
      at::Tensor flat = sum.flatten(1);
      return kernels::clipped_sum_ref({a_BTi, g_BTo}, factors.to(at::kFloat), flat, goes_on);
    }
    if (factors.defined()) {  // the narrower operand takes the factors: the smaller copy
      at::Tensor& smaller = a_BTi.size(2) < g_BTo.size(2) ? a_BTi : g_BTo;
      at::Tensor& other = a_BTi.size(2) < g_BTo.size(2) ? g_BTo : a_BTi;
      smaller = scaled_rows(at_least_float(smaller), factors);
      other = at_least_float(without_dropped(other, factors));
    }
    const at::Tensor a_Ni = a_BTi.flatten(0, 1), g_oN = g_BTo.flatten(0, 1).t();
    if (!sum.defined()) {
      sum = wide_mm(g_oN, a_Ni).view(shape);
    } else if (sum.scalar_type() == a_Ni.scalar_type()) {
      at::Tensor flat = sum.flatten(1);
      flat.addmm_(g_oN, a_Ni);
    } else {
      sum.add_(wide_mm(g_oN, a_Ni).view(shape));
    }
  }
};

}  // namespace

std::shared_ptr<const LayerRule> make_linear_rule() {
  return std::make_shared<LinearRule>();
}

}  // namespace moonshard::privacy
