// Lab of rotary: compares with double precision, then times. build/bin/rotary_lab [--check]
#include <memory>

#include "kernels/common/elementwise_launch.h"
#include "kernels/common/fused_lab.h"

namespace {

using namespace moonshard::kernels;
using namespace moonshard::kernels::lab;

struct Shape {
  int64_t samples, tokens;
  int q_heads, k_heads, half;
  bool inverse;
  int64_t shift;
};

void rotate(std::vector<double>& x, const Shape& s, int heads, const std::vector<double>& cosines,
            const std::vector<double>& sines) {
  for (int64_t row = 0; row < s.samples * s.tokens; ++row) {
    for (int head = 0; head < heads; ++head) {
      for (int i = 0; i < s.half; ++i) {
        double& a = x[(row * heads + head) * 2 * s.half + i];
        double& b = x[(row * heads + head) * 2 * s.half + s.half + i];
        const double c = cosines[row % s.tokens * s.half + i];
        const double w = (s.inverse ? -1 : 1) * sines[row % s.tokens * s.half + i];
        const double turned = a * c - b * w;
        b = b * c + a * w;
        a = turned;
      }
    }
  }
}

template <class T>
void check_case(Report& report, const Shape& s) {
  const int64_t rows = s.samples * s.tokens;
  auto q = random_numbers<T>(rows * s.q_heads * 2 * s.half);
  auto k = random_numbers<T>(rows * s.k_heads * 2 * s.half);
  std::vector<double> cosines(s.tokens * s.half), sines(s.tokens * s.half);
  for (int64_t t = 0; t < s.tokens; ++t) {
    for (int i = 0; i < s.half; ++i) {
      const double angle =
          static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(i) / s.half);
      cosines[t * s.half + i] = rounded<T>(std::cos(angle));
      sines[t * s.half + i] = rounded<T>(std::sin(angle));
    }
  }
  Array<T> d_q(static_cast<int64_t>(q.size()), s.shift), d_k(static_cast<int64_t>(k.size()));
  Array<float> d_cosines(static_cast<int64_t>(cosines.size())),
      d_sines(static_cast<int64_t>(sines.size()));
  d_q.write(q);
  d_k.write(k);
  d_cosines.write(cosines);
  d_sines.write(sines);
  Rotary p;
  p.q = d_q.data();
  p.k = d_k.data();
  p.cosines = d_cosines.data();
  p.sines = d_sines.data();
  p.rows = rows;
  p.tokens = s.tokens;
  p.q_heads = s.q_heads;
  p.k_heads = s.k_heads;
  p.half = s.half;
  p.inverse = s.inverse;
  p.format = format_of<T>();
  launch_rotary(p, nullptr);
  rotate(q, s, s.q_heads, cosines, sines);
  rotate(k, s, s.k_heads, cosines, sines);
  const std::string what = std::string(name_of<T>()) + " [" + std::to_string(s.samples) + "," +
                           std::to_string(s.tokens) + "] heads " + std::to_string(s.q_heads) + "," +
                           std::to_string(s.k_heads) + " d " + std::to_string(2 * s.half) +
                           (s.inverse ? " inverse" : "") + " shift " + std::to_string(s.shift);
  bool guards = true;
  // The two products may cancel: float32's rounding of them is what remains.
  report.compare("q " + what, d_q.read(guards), q, unit_of<T>(), 1e-6, guards);
  report.compare("k " + what, d_k.read(guards), k, unit_of<T>(), 1e-6, guards);
}

template <class T>
void benchmark(const Shape& s) {
  const int64_t rows = s.samples * s.tokens, q_count = rows * s.q_heads * 2 * s.half,
                k_count = rows * s.k_heads * 2 * s.half;
  const double bytes = 2.0 * static_cast<double>((q_count + k_count) * sizeof(T));
  const int sets = static_cast<int>(std::max(2.0, 4e8 / bytes));
  std::vector<std::unique_ptr<Array<T>>> q, k;
  for (int i = 0; i < sets; ++i) {
    q.push_back(std::make_unique<Array<T>>(q_count));
    k.push_back(std::make_unique<Array<T>>(k_count));
    check(cudaMemset(q.back()->data(), 0, q_count * sizeof(T)), "cudaMemset");
    check(cudaMemset(k.back()->data(), 0, k_count * sizeof(T)), "cudaMemset");
  }
  Array<float> tables(2 * s.tokens * s.half);
  check(cudaMemset(tables.data(), 0, 2 * s.tokens * s.half * sizeof(float)), "cudaMemset");
  Rotary p;
  p.cosines = tables.data();
  p.sines = tables.data() + s.tokens * s.half;
  p.rows = rows;
  p.tokens = s.tokens;
  p.q_heads = s.q_heads;
  p.k_heads = s.k_heads;
  p.half = s.half;
  p.format = format_of<T>();
  print_speed(std::string("rotary ") + name_of<T>() + " [" + std::to_string(s.samples) + ", " +
                  std::to_string(s.tokens) + "] heads " + std::to_string(s.q_heads) + "+" +
                  std::to_string(s.k_heads),
              median_ms([&](int i) {
                p.q = q[i % sets]->data();
                p.k = k[i % sets]->data();
                launch_rotary(p, nullptr);
              }),
              bytes);
}

template <class T>
void check_shapes(Report& report) {
  for (const int half : {1, 3, 8, 12, 16, 20, 32, 64, 128}) {
    for (const bool inverse : {false, true}) {
      check_case<T>(report, {2, 7, 4, 2, half, inverse, 0});
      check_case<T>(report, {1, 33, 5, 1, half, inverse, 1});
    }
  }
  check_case<T>(report, {2, 17, 32, 8, 64, false, 0});
}

}  // namespace

int main(int argc, char** argv) {
  Report report;
  check_shapes<float>(report);
  check_shapes<__nv_bfloat16>(report);
  if (wants_benchmark(argc, argv)) {
    benchmark<__nv_bfloat16>({2, 1024, 32, 8, 64, false, 0});
    benchmark<__nv_bfloat16>({2, 4096, 32, 8, 64, false, 0});
    benchmark<__nv_bfloat16>({4, 2048, 16, 16, 64, false, 0});
    benchmark<float>({2, 1024, 32, 8, 64, false, 0});
  }
  return finish(report);
}
