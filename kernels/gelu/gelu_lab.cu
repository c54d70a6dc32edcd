// Lab of gelu: compares with double precision, then times. build/bin/gelu_lab [--check]
#include <memory>

#include "kernels/common/elementwise_launch.h"
#include "kernels/common/fused_lab.h"

namespace {

using namespace moonshard::kernels;
using namespace moonshard::kernels::lab;

template <class T>
void check_case(Report& report, int64_t count, int64_t shift, double std, bool overwrite) {
  const std::string what = std::string(name_of<T>()) + " n " + std::to_string(count) + " shift " +
                           std::to_string(shift) + " std " + std::to_string(static_cast<int>(std)) +
                           (overwrite ? " in place" : "");
  const auto x = random_numbers<T>(count, std), g = random_numbers<T>(count);
  Array<T> d_x(count, shift), d_g(count), result(count), gradient(count);
  d_x.write(x);
  d_g.write(g);
  launch_gelu_forward(d_x.data(), result.data(), count, format_of<T>(), nullptr);
  launch_gelu_backward(d_g.data(), d_x.data(), overwrite ? d_g.data() : gradient.data(), count,
                       format_of<T>(), nullptr);
  const double slope = std::sqrt(2 / std::acos(-1.0)), cubic = 0.044715;
  std::vector<double> want(count), want_gradient(count);
  for (int64_t i = 0; i < count; ++i) {
    const double v = x[i], inner = slope * (v + cubic * v * v * v), t = std::tanh(inner);
    // 1 + tanh(u) = 2 / (1 + exp(-2u)), without the cancellation on the left.
    want[i] = v / (1 + std::exp(-2 * inner));
    want_gradient[i] =
        g[i] * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope * (1 + 3 * cubic * v * v));
  }
  bool guards = true;
  // exp's error grows with its argument: a few units of float32 for each unit of the exponent.
  const double relative = sizeof(T) == 2 ? unit_of<T>() : 256 * unit_of<T>();
  report.compare("forward " + what, result.read(guards), want, relative, 1e-30, guards);
  report.compare("gradient " + what, (overwrite ? d_g : gradient).read(guards), want_gradient,
                 relative, 2e-5, guards);
}

template <class T>
void benchmark(int64_t rows, int64_t width) {
  const int64_t count = rows * width;
  const int sets = static_cast<int>(std::max<int64_t>(2, 400'000'000 / (count * 3 * sizeof(T))));
  std::vector<std::unique_ptr<Array<T>>> memory;
  for (int i = 0; i < 3 * sets; ++i) {
    memory.push_back(std::make_unique<Array<T>>(count));
    check(cudaMemset(memory.back()->data(), 0, count * sizeof(T)), "cudaMemset");
  }
  const auto at = [&](int i, int j) { return memory[i % sets * 3 + j]->data(); };
  const double bytes = static_cast<double>(count * sizeof(T));
  const std::string what =
      std::string(name_of<T>()) + " [" + std::to_string(rows) + ", " + std::to_string(width) + "]";
  print_speed("gelu forward " + what, median_ms([&](int i) {
                launch_gelu_forward(at(i, 0), at(i, 1), count, format_of<T>(), nullptr);
              }),
              2 * bytes);
  print_speed("gelu backward " + what, median_ms([&](int i) {
                launch_gelu_backward(at(i, 1), at(i, 0), at(i, 2), count, format_of<T>(), nullptr);
              }),
              3 * bytes);
}

}  // namespace

int main(int argc, char** argv) {
  Report report;
  for (const int64_t count : {1, 7, 8, 9, 255, 2048, 2049, 100'003}) {
    for (const int64_t shift : {0, 1}) {
      check_case<float>(report, count, shift, 1, shift == 1);
      check_case<__nv_bfloat16>(report, count, shift, 1, shift == 0);
    }
  }
  check_case<float>(report, 50'000, 0, 3, false);
  check_case<__nv_bfloat16>(report, 50'000, 0, 3, true);
  if (wants_benchmark(argc, argv)) {
    benchmark<float>(16384, 4096);
    benchmark<__nv_bfloat16>(16384, 4096);
  }
  return finish(report);
}
