// Lab of layer_norm: compares with double precision, then times. build/bin/layer_norm_lab [--check]
#include <memory>

#include "kernels/common/fused_lab.h"
#include "kernels/layer_norm/layer_norm_launch.h"

namespace {

using namespace moonshard::kernels;
using namespace moonshard::kernels::lab;

constexpr double kEps = 1e-6;

struct Shape {
  int64_t samples, tokens;
  int width, chunks;
  bool gated, affine, modulated, dy, normalised, in_place;
  int64_t shift;  ///< of d_result and x: off 0 the addresses allow no 16-byte accesses
};

std::string text_of(const Shape& s) {
  return "[" + std::to_string(s.samples) + "," + std::to_string(s.tokens) + "," +
         std::to_string(s.width) + "] chunks " + std::to_string(s.chunks) +
         (s.gated ? " gated" : "") + (s.affine ? " affine" : "") +
         (s.modulated ? " modulated" : "") + (s.dy ? " dy" : "") + " shift " +
         std::to_string(s.shift);
}

// The formulas of layer_norm.h in double, rounded where they say so.
struct Expected {
  std::vector<double> y, result, mean, spread, dx, d_branch, normalised, dn;
  std::vector<double> d_gate, d_scale, d_shift, weight_rows, bias_rows;
};

struct Inputs {
  std::vector<double> x, branch, d_result, dy, modulation, weight, bias;
};

// Everything behind y follows from the y that the kernel made: it may be rounded to the other side.
template <class T>
Expected expected_of(const Shape& s, const Inputs& in, const std::vector<double>& made_y) {
  const int64_t rows = s.samples * s.tokens, count = rows * s.width, d = s.width;
  Expected e;
  e.y = in.x;
  for (auto* v : {&e.result, &e.dx, &e.d_branch, &e.normalised, &e.dn}) v->resize(count);
  for (auto* v : {&e.d_gate, &e.d_scale, &e.d_shift, &e.weight_rows, &e.bias_rows})
    v->resize(s.samples * d);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t b = r / s.tokens;
    // Rows of gate, scale and shift lie beside each other, as chunks of one projection do.
    const double *gate = in.modulation.data() + b * 3 * d, *scale = gate + d, *shift = gate + 2 * d;
    const double* y = made_y.data() + r * d;
    double mean = 0, var = 0;
    for (int64_t i = 0; i < d; ++i) {
      if (s.gated) e.y[r * d + i] = rounded<T>(in.x[r * d + i] + gate[i] * in.branch[r * d + i]);
      mean += y[i] / static_cast<double>(d);
    }
    for (int64_t i = 0; i < d; ++i) var += (y[i] - mean) * (y[i] - mean) / static_cast<double>(d);
    const double spread = 1 / std::sqrt(var + kEps);
    e.mean.push_back(mean);
    e.spread.push_back(spread);
    double along = 0, along_h = 0;
    for (int64_t i = 0; i < d; ++i) {
      const double h = (y[i] - mean) * spread, w = s.affine ? rounded<T>(in.weight[i]) : 1,
                   to_n = s.modulated ? 1 + scale[i] : 1;
      const int64_t at = r * d + i;
      e.normalised[at] = rounded<T>(h);
      double n = e.normalised[at];
      if (s.affine) n = rounded<T>(n * w + rounded<T>(in.bias[i]));
      e.result[at] = s.modulated ? n * to_n + shift[i] : n;
      const double out = in.d_result[at];
      e.dn[at] = out * to_n;
      along += e.dn[at] * w / static_cast<double>(d);
      along_h += e.dn[at] * w * h / static_cast<double>(d);
      e.d_shift[b * d + i] += out;
      e.d_scale[b * d + i] +=
          out * (e.normalised[at] * w + (s.affine ? rounded<T>(in.bias[i]) : 0));
      e.weight_rows[b * d + i] += e.dn[at] * e.normalised[at];
      e.bias_rows[b * d + i] += e.dn[at];
    }
    for (int64_t i = 0; i < d; ++i) {
      const double h = (y[i] - mean) * spread, w = s.affine ? rounded<T>(in.weight[i]) : 1;
      const int64_t at = r * d + i;
      const double total = spread * (e.dn[at] * w - along - h * along_h) + (s.dy ? in.dy[at] : 0);
      e.dx[at] = total;
      e.d_branch[at] = total * gate[i];
      e.d_gate[b * d + i] += total * in.branch[at];
    }
  }
  return e;
}

template <class T, class W>
void check_case(Report& report, const Shape& s) {
  const int64_t rows = s.samples * s.tokens, count = rows * s.width, d = s.width;
  Inputs in{random_numbers<T>(count, 2, 1),
            random_numbers<T>(count),
            random_numbers<T>(count),
            random_numbers<T>(count),
            random_numbers<T>(s.samples * 3 * d, 0.5),
            random_numbers<W>(d, 0.5, 1),
            random_numbers<W>(d, 0.5)};
  Array<T> x(count, s.shift), branch(count), d_result(count, s.shift), dy(count),
      modulation(s.samples * 3 * d), y(count), result(count), dx(count), d_branch(count),
      normalised(count), dn(count), d_gate(s.samples * d), d_scale(s.samples * d),
      d_shift(s.samples * d);
  Array<W> weight(d), bias(d);
  Array<float> mean(rows), spread(rows), weight_rows(s.samples * d), bias_rows(s.samples * d),
      chunk_sums(s.samples * s.chunks * 3 * d);
  x.write(in.x);
  branch.write(in.branch);
  d_result.write(in.d_result);
  dy.write(in.dy);
  modulation.write(in.modulation);
  weight.write(in.weight);
  bias.write(in.bias);
  const SampleRows gate_rows{modulation.data(), 3 * d}, scale_rows{modulation.data() + d, 3 * d},
      shift_rows{modulation.data() + 2 * d, 3 * d};

  LayerNormForward f;
  f.x = x.data();
  f.branch = s.gated ? branch.data() : nullptr;
  if (s.gated) f.gate = gate_rows;
  if (s.modulated) f.scale = scale_rows, f.shift = shift_rows;
  f.weight = s.affine ? weight.data() : nullptr;
  f.bias = s.affine ? bias.data() : nullptr;
  f.y = s.gated ? y.data() : nullptr;
  f.result = result.data();
  f.mean = mean.data();
  f.inverse_spread = spread.data();
  f.samples = s.samples;
  f.tokens = s.tokens;
  f.width = s.width;
  f.eps = static_cast<float>(kEps);
  f.format = format_of<T>();
  f.weight_format = s.affine ? format_of<W>() : format_of<T>();
  launch_layer_norm_forward(f, nullptr);

  LayerNormBackward b;
  b.d_result = d_result.data();
  b.dy = s.dy ? dy.data() : nullptr;
  b.y = s.gated ? y.data() : x.data();
  b.branch = f.branch;
  b.gate = f.gate;
  b.scale = f.scale;
  b.weight = f.weight;
  b.bias = f.bias;
  b.mean = mean.data();
  b.inverse_spread = spread.data();
  b.dx = dx.data();
  if (s.gated) b.d_branch = s.in_place ? d_result.data() : d_branch.data();
  if (s.normalised) b.normalised = normalised.data(), b.dn = dn.data();
  if (s.gated) b.d_gate = d_gate.data();
  if (s.modulated) b.d_scale = d_scale.data(), b.d_shift = d_shift.data();
  if (s.affine) b.weight_rows = weight_rows.data(), b.bias_rows = bias_rows.data();
  b.chunk_sums = s.gated || s.modulated || s.affine ? chunk_sums.data() : nullptr;
  b.samples = s.samples;
  b.tokens = s.tokens;
  b.chunks = s.chunks;
  b.width = s.width;
  b.format = f.format;
  b.weight_format = f.weight_format;
  launch_layer_norm_backward(b, nullptr);

  const std::string what = std::string(name_of<T>()) + "/" + name_of<W>() + " " + text_of(s);
  const double unit = unit_of<T>();
  bool guards = true;
  const Expected want = expected_of<T>(s, in, s.gated ? y.read(guards) : in.x);
  // Values far from 1 cancel: the mean in short rows, the two parts of the result, the sums.
  const double spread_most = *std::max_element(want.spread.begin(), want.spread.end());
  const double slack = 1e-5 * std::max(1.0, spread_most);
  const double half_step = sizeof(T) == 2 ? 2 * unit : 0;  // where h or n falls the other way
  if (s.gated) report.compare("y " + what, y.read(guards), want.y, unit, 2e-6, guards);
  report.compare("mean " + what, mean.read(guards), want.mean, 2e-6, 4e-6, guards);
  report.compare("result " + what, result.read(guards), want.result, 2 * unit + 1e-5,
                 4 * half_step + slack, guards);
  report.compare("dx " + what, dx.read(guards), want.dx, unit + 1e-5, 4 * slack, guards);
  if (s.gated) {
    report.compare("d_branch " + what, (s.in_place ? d_result : d_branch).read(guards),
                   want.d_branch, unit + 1e-5, 4 * slack, guards);
  }
  if (s.normalised) {
    report.compare("normalised " + what, normalised.read(guards), want.normalised, unit + 1e-5,
                   half_step + slack, guards);
    report.compare("dn " + what, dn.read(guards), want.dn, unit, 1e-6, guards);
  }
  const double tokens = static_cast<double>(s.tokens);
  const double sum_slack = (half_step * spread_most + 4 * slack) * 4 * std::sqrt(tokens) + 1e-5;
  if (s.gated)
    report.compare("d_gate " + what, d_gate.read(guards), want.d_gate, unit + 1e-5, 2 * sum_slack,
                   guards);
  if (s.modulated) {
    report.compare("d_scale " + what, d_scale.read(guards), want.d_scale, unit + 1e-5,
                   2 * sum_slack, guards);
    report.compare("d_shift " + what, d_shift.read(guards), want.d_shift, unit + 1e-5,
                   1e-5 * tokens, guards);
  }
  if (s.affine) {
    report.compare("weight rows " + what, weight_rows.read(guards), want.weight_rows, 1e-5,
                   2 * sum_slack, guards);
    report.compare("bias rows " + what, bias_rows.read(guards), want.bias_rows, 1e-5, 1e-5 * tokens,
                   guards);
  }
}

template <class T, class W>
void check_shapes(Report& report) {
  for (const int width : {2, 8, 40, 64, 100, 256, 1000, 1024, 1152, 4088, 4091, 4096}) {
    for (const int64_t shift : {0, 1}) {
      const bool odd = shift == 1;
      check_case<T, W>(report, {2, 5, width, 3, true, false, true, true, false, !odd, shift});
      check_case<T, W>(report, {2, 5, width, 5, true, true, true, true, odd, odd, shift});
      check_case<T, W>(report, {3, 2, width, 1, false, true, false, false, true, false, shift});
      check_case<T, W>(report, {1, 4, width, 4, false, false, false, true, false, false, shift});
      check_case<T, W>(report, {1, 4, width, 2, false, true, true, false, false, false, shift});
    }
  }
}

template <class T>
void benchmark(int64_t samples, int64_t tokens, int width) {
  const int64_t rows = samples * tokens, count = rows * width;
  const int chunks =
      static_cast<int>(std::clamp<int64_t>(1056 * 1024 / (width * samples), 1, tokens));
  const int sets = static_cast<int>(std::max<int64_t>(2, 400'000'000 / (count * 6 * sizeof(T))));
  std::vector<std::unique_ptr<Array<T>>> memory;
  for (int i = 0; i < 6 * sets; ++i) {
    memory.push_back(std::make_unique<Array<T>>(count));
    check(cudaMemset(memory.back()->data(), 0, count * sizeof(T)), "cudaMemset");
  }
  Array<T> modulation(samples * 6 * width);
  check(cudaMemset(modulation.data(), 0, samples * 6 * width * sizeof(T)), "cudaMemset");
  Array<float> mean(rows), spread(rows), chunk_sums(samples * chunks * 3 * width);
  const auto at = [&](int i, int j) { return memory[i % sets * 6 + j]->data(); };
  const double bytes = static_cast<double>(count * sizeof(T));
  const std::string what = std::string(name_of<T>()) + " [" + std::to_string(samples) + ", " +
                           std::to_string(tokens) + ", " + std::to_string(width) + "]";
  const int64_t stride = 6 * width;
  LayerNormForward f;
  f.gate = SampleRows{modulation.data(), stride};
  f.scale = SampleRows{modulation.data() + width, stride};
  f.shift = SampleRows{modulation.data() + 2 * width, stride};
  f.mean = mean.data();
  f.inverse_spread = spread.data();
  f.samples = samples;
  f.tokens = tokens;
  f.width = width;
  f.eps = static_cast<float>(kEps);
  f.format = f.weight_format = format_of<T>();
  print_speed("gated add + layer_norm + modulation forward " + what, median_ms([&](int i) {
                f.x = at(i, 0);
                f.branch = at(i, 1);
                f.y = at(i, 2);
                f.result = at(i, 3);
                launch_layer_norm_forward(f, nullptr);
              }),
              4 * bytes);
  LayerNormBackward b;
  b.gate = f.gate;
  b.scale = f.scale;
  b.mean = mean.data();
  b.inverse_spread = spread.data();
  Array<T> d_gate(samples * width), d_scale(samples * width), d_shift(samples * width);
  b.d_gate = d_gate.data();
  b.d_scale = d_scale.data();
  b.d_shift = d_shift.data();
  b.chunk_sums = chunk_sums.data();
  b.samples = samples;
  b.tokens = tokens;
  b.chunks = chunks;
  b.width = width;
  b.format = b.weight_format = f.format;
  print_speed("the same backward " + what, median_ms([&](int i) {
                b.y = at(i, 0);
                b.branch = at(i, 1);
                b.d_result = at(i, 2);
                b.dy = at(i, 3);
                b.dx = at(i, 4);
                b.d_branch = at(i, 5);
                launch_layer_norm_backward(b, nullptr);
              }),
              6 * bytes);
}

}  // namespace

int main(int argc, char** argv) {
  Report report;
  check_shapes<float, float>(report);
  check_shapes<__nv_bfloat16, float>(report);
  check_shapes<__nv_bfloat16, __nv_bfloat16>(report);
  if (wants_benchmark(argc, argv)) {
    benchmark<float>(16, 1024, 1024);
    benchmark<__nv_bfloat16>(16, 1024, 1024);
    benchmark<float>(2, 1024, 1024);
    benchmark<float>(32, 256, 1152);
  }
  return finish(report);
}
