// Lab of rms_norm: compares with double precision, then times. build/bin/rms_norm_lab [--check]
#include <memory>

#include "kernels/common/fused_lab.h"
#include "kernels/rms_norm/rms_norm_launch.h"

namespace {

using namespace moonshard::kernels;
using namespace moonshard::kernels::lab;

struct Shape {
  int64_t samples, tokens;
  int width, chunks;
  bool delta, dy, rows, normalised;
  int64_t shift;  ///< of dn: off 0 the addresses allow no 16-byte accesses
};

constexpr double kEps = 1e-5;

template <class T, class W>
void check_case(Report& report, const Shape& s) {
  const int64_t rows = s.samples * s.tokens, count = rows * s.width;
  const std::string what = std::string(name_of<T>()) + "/" + name_of<W>() + " [" +
                           std::to_string(s.samples) + "," + std::to_string(s.tokens) + "," +
                           std::to_string(s.width) + "] chunks " + std::to_string(s.chunks) +
                           " shift " + std::to_string(s.shift);
  const auto x = random_numbers<T>(count, 2), delta = random_numbers<T>(count),
             weight = random_numbers<W>(s.width, 0.5, 1), dn = random_numbers<T>(count),
             dy = random_numbers<T>(count);
  Array<T> d_x(count, s.shift), d_delta(count), d_dn(count, s.shift), d_dy(count), d_y(count),
      d_n(count), d_dx(count), d_normalised(count);
  Array<W> d_weight(s.width);
  Array<float> d_spread(rows), d_rows(s.samples * s.width),
      d_chunks(s.samples * s.chunks * s.width);
  d_x.write(x);
  d_delta.write(delta);
  d_weight.write(weight);
  d_dn.write(dn);
  d_dy.write(dy);

  RmsNormForward f;
  f.x = d_x.data();
  f.delta = s.delta ? d_delta.data() : nullptr;
  f.weight = d_weight.data();
  f.y = s.delta ? d_y.data() : nullptr;
  f.n = d_n.data();
  f.inverse_spread = d_spread.data();
  f.rows = rows;
  f.width = s.width;
  f.eps = static_cast<float>(kEps);
  f.format = format_of<T>();
  f.weight_format = format_of<W>();
  launch_rms_norm_forward(f, nullptr);
  RmsNormBackward b;
  b.dn = d_dn.data();
  b.dy = s.dy ? d_dy.data() : nullptr;
  b.y = s.delta ? d_y.data() : d_x.data();
  b.inverse_spread = d_spread.data();
  b.weight = d_weight.data();
  b.dx = d_dx.data();
  b.normalised = s.normalised ? d_normalised.data() : nullptr;
  b.weight_rows = s.rows ? d_rows.data() : nullptr;
  b.chunk_rows = s.rows && s.chunks > 1 ? d_chunks.data() : nullptr;
  b.samples = s.samples;
  b.tokens = s.tokens;
  b.chunks = s.chunks;
  b.width = s.width;
  b.format = f.format;
  b.weight_format = f.weight_format;
  launch_rms_norm_backward(b, nullptr);

  std::vector<double> y(count), n(count), spread(rows), dx(count), normalised(count),
      weight_rows(s.samples * s.width), sizes(s.samples * s.width);
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0, along = 0;
    for (int i = 0; i < s.width; ++i) {
      const int64_t e = r * s.width + i;
      y[e] = s.delta ? rounded<T>(x[e] + delta[e]) : x[e];
      squares += y[e] * y[e];
    }
    spread[r] = 1 / std::sqrt(squares / s.width + kEps);
    for (int i = 0; i < s.width; ++i) {
      const int64_t e = r * s.width + i;
      normalised[e] = rounded<T>(y[e] * spread[r]);
      n[e] = normalised[e] * rounded<T>(weight[i]);
      along += dn[e] * rounded<T>(weight[i]) * y[e] * spread[r] / s.width;
    }
    for (int i = 0; i < s.width; ++i) {
      const int64_t e = r * s.width + i, w = r / s.tokens * s.width + i;
      dx[e] = spread[r] * (dn[e] * rounded<T>(weight[i]) - y[e] * spread[r] * along) +
              (s.dy ? dy[e] : 0);
      weight_rows[w] += dn[e] * normalised[e];
      sizes[w] += std::fabs(dn[e] * normalised[e]);
    }
  }
  const double unit = unit_of<T>();
  bool guards = true;
  if (s.delta) report.compare("y " + what, d_y.read(guards), y, 0, 1e-300, guards);
  report.compare("spread " + what, d_spread.read(guards), spread, 2e-6, 0, guards);
  report.compare("n " + what, d_n.read(guards), n, 2 * unit + 4e-6, 1e-30, guards);
  // What cancels inside is of the size of the inverse spread: large for a short row near 0.
  const double largest_spread = *std::max_element(spread.begin(), spread.end());
  report.compare("dx " + what, d_dx.read(guards), dx, unit + 4e-6,
                 1e-5 * std::max(1.0, largest_spread), guards);
  if (s.normalised)
    report.compare("normalised " + what, d_normalised.read(guards), normalised, unit + 4e-6, 1e-30,
                   guards);
  if (s.rows) {
    // A normalised value that falls to the other side of a rounding moves its term by one unit;
    // 8 units leave room for two such terms of size 4.
    const auto got = d_rows.read(guards);
    double largest = 0;
    for (const double size : sizes) largest = std::max(largest, size);
    report.compare("rows " + what, got, weight_rows, 2e-6, largest * 2e-6 + 8 * unit, guards);
  }
}

template <class T, class W>
void check_shapes(Report& report) {
  for (const int width : {1, 5, 8, 64, 100, 128, 1000, 1024, 2048, 2051, 4096, 4104, 8191, 8192}) {
    for (const int64_t shift : {0, 1}) {
      check_case<T, W>(report, {2, 5, width, 3, true, true, true, false, shift});
      check_case<T, W>(report, {3, 1, width, 1, false, false, true, true, shift});
      check_case<T, W>(report, {1, 7, width, 7, true, false, false, true, shift});
    }
  }
  check_case<T, W>(report, {3, 67, 264, 66, false, true, true, true, 0});
}

template <class T, class W>
void benchmark(int64_t samples, int64_t tokens, int width) {
  const int64_t rows = samples * tokens, count = rows * width;
  const int chunks = static_cast<int>(
      std::clamp<int64_t>(264 * 4096 / (width * samples), 1, tokens));  // as in rms_norm.cpp
  const int sets = static_cast<int>(std::max<int64_t>(2, 400'000'000 / (count * 4 * sizeof(T))));
  std::vector<std::unique_ptr<Array<T>>> memory;
  for (int i = 0; i < 4 * sets; ++i) {
    memory.push_back(std::make_unique<Array<T>>(count));
    check(cudaMemset(memory.back()->data(), 0, count * sizeof(T)), "cudaMemset");
  }
  Array<W> weight(width);
  Array<float> spread(rows), weight_rows(samples * width), chunk_rows(samples * chunks * width);
  check(cudaMemset(weight.data(), 0, width * sizeof(W)), "cudaMemset");
  const auto at = [&](int i, int j) { return memory[i % sets * 4 + j]->data(); };
  const double bytes = static_cast<double>(count * sizeof(T));
  const std::string what = std::string(name_of<T>()) + " [" + std::to_string(samples) + ", " +
                           std::to_string(tokens) + ", " + std::to_string(width) + "]";
  RmsNormForward f;
  f.weight = weight.data();
  f.inverse_spread = spread.data();
  f.rows = rows;
  f.width = width;
  f.eps = static_cast<float>(kEps);
  f.format = format_of<T>();
  f.weight_format = format_of<W>();
  print_speed("add + rms_norm forward " + what, median_ms([&](int i) {
                f.x = at(i, 0);
                f.delta = at(i, 1);
                f.y = at(i, 2);
                f.n = at(i, 3);
                launch_rms_norm_forward(f, nullptr);
              }),
              4 * bytes);
  RmsNormBackward b;
  b.inverse_spread = spread.data();
  b.weight = weight.data();
  b.samples = samples;
  b.tokens = tokens;
  b.width = width;
  b.format = f.format;
  b.weight_format = f.weight_format;
  for (const bool with_rows : {true, false}) {
    b.weight_rows = with_rows ? weight_rows.data() : nullptr;
    b.chunk_rows = with_rows ? chunk_rows.data() : nullptr;
    b.chunks = with_rows ? chunks : static_cast<int>(tokens);
    print_speed((with_rows ? "rms_norm backward with rows " : "rms_norm backward ") + what,
                median_ms([&](int i) {
                  b.y = at(i, 0);
                  b.dn = at(i, 1);
                  b.dy = at(i, 2);
                  b.dx = at(i, 3);
                  launch_rms_norm_backward(b, nullptr);
                }),
                4 * bytes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Report report;
  check_shapes<float, float>(report);
  check_shapes<__nv_bfloat16, float>(report);
  check_shapes<__nv_bfloat16, __nv_bfloat16>(report);
  if (wants_benchmark(argc, argv)) {
    benchmark<__nv_bfloat16, float>(2, 1024, 4096);
    benchmark<__nv_bfloat16, float>(2, 4096, 4096);
    benchmark<__nv_bfloat16, float>(4, 2048, 2048);
    benchmark<float, float>(2, 1024, 4096);
  }
  return finish(report);
}
