// Lab of gated layers: compares with double precision, then times. build/bin/gated_lab [--check]
#include <memory>

#include "kernels/common/elementwise_launch.h"
#include "kernels/common/fused_lab.h"

namespace {

using namespace moonshard::kernels;
using namespace moonshard::kernels::lab;

struct Opened {
  double value, slope;
};

Opened opened(double x, GateFunction function) {
  const bool silu = function == GateFunction::Silu;
  const double slope = 2 * std::sqrt(2 / M_PI), cubic = 0.044715;
  const double inner = silu ? x : slope * (x + cubic * x * x * x);
  const double inner_slope = silu ? 1 : slope * (1 + 3 * cubic * x * x);
  const double s = 1 / (1 + std::exp(-inner));
  return {x * s, s * (1 + x * (1 - s) * inner_slope)};
}

template <class T>
void check_case(Report& report, int64_t count, int64_t shift, double std, bool overwrite,
                GateFunction function) {
  const std::string what = std::string(function == GateFunction::Silu ? "silu " : "gelu ") +
                           name_of<T>() + " n " + std::to_string(count) + " shift " +
                           std::to_string(shift) + " std " + std::to_string(static_cast<int>(std)) +
                           (overwrite ? " in place" : "");
  const auto gate = random_numbers<T>(count, std), up = random_numbers<T>(count),
             g = random_numbers<T>(count);
  Array<T> d_gate(count, shift), d_up(count), d_g(count, shift), result(count), to_gate(count),
      to_up(count), again(count);
  d_gate.write(gate);
  d_up.write(up);
  d_g.write(g);
  launch_gated_forward(d_gate.data(), d_up.data(), result.data(), count, function, format_of<T>(),
                       nullptr);
  launch_gated_backward(d_g.data(), d_gate.data(), d_up.data(), to_gate.data(),
                        overwrite ? d_g.data() : to_up.data(), again.data(), count, function,
                        format_of<T>(), nullptr);
  std::vector<double> want(count), want_gate(count), want_up(count);
  for (int64_t i = 0; i < count; ++i) {
    const Opened at = opened(gate[i], function);
    want[i] = rounded<T>(at.value) * up[i];
    want_up[i] = g[i] * rounded<T>(at.value);
    want_gate[i] = g[i] * up[i] * at.slope;
  }
  bool guards = true;
  // One unit for the result's rounding, one where f's falls to the other side; float32 adds a
  // few units of exp. The slope of f crosses 0, where only absolute error means anything, and so
  // does gelu itself far out.
  const double relative = sizeof(T) == 2 ? 2 * unit_of<T>() : 16 * unit_of<T>();
  const double least = function == GateFunction::Silu ? 1e-30 : 1e-6;
  report.compare("forward " + what, result.read(guards), want, relative, least, guards);
  report.compare("gradient of gate " + what, to_gate.read(guards), want_gate, relative, 2e-5,
                 guards);
  report.compare("gradient of up " + what, (overwrite ? d_g : to_up).read(guards), want_up,
                 relative, least, guards);
  const auto first = result.read(guards), second = again.read(guards);
  report.compare("product again " + what, second, std::vector<double>(first.begin(), first.end()),
                 0, 1e-30, guards);
}

template <class T>
void benchmark(int64_t rows, int64_t width) {
  const int64_t count = rows * width;
  const int sets = static_cast<int>(std::max<int64_t>(2, 400'000'000 / (count * 6 * sizeof(T))));
  std::vector<std::unique_ptr<Array<T>>> memory;
  const auto values = random_numbers<T>(1 << 16);
  for (int i = 0; i < 6 * sets; ++i) {
    memory.push_back(std::make_unique<Array<T>>(count));
    check(cudaMemset(memory.back()->data(), 0, count * sizeof(T)), "cudaMemset");
  }
  const auto at = [&](int i, int j) { return memory[i % sets * 6 + j]->data(); };
  const double bytes = static_cast<double>(count * sizeof(T));
  const std::string what =
      std::string(name_of<T>()) + " [" + std::to_string(rows) + ", " + std::to_string(width) + "]";
  const GateFunction silu = GateFunction::Silu;
  print_speed("gated forward " + what, median_ms([&](int i) {
                launch_gated_forward(at(i, 0), at(i, 1), at(i, 2), count, silu, format_of<T>(),
                                     nullptr);
              }),
              3 * bytes);
  for (const bool product : {false, true}) {
    print_speed(std::string("gated backward ") + (product ? "with product " : "") + what,
                median_ms([&](int i) {
                  launch_gated_backward(at(i, 2), at(i, 0), at(i, 1), at(i, 3), at(i, 4),
                                        product ? at(i, 5) : nullptr, count, silu, format_of<T>(),
                                        nullptr);
                }),
                (product ? 6 : 5) * bytes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Report report;
  for (const GateFunction function : {GateFunction::Silu, GateFunction::GeluTanh}) {
    for (const int64_t count : {1, 7, 8, 9, 255, 2048, 2049, 100'003}) {
      for (const int64_t shift : {0, 1}) {
        check_case<float>(report, count, shift, 1, shift == 1, function);
        check_case<__nv_bfloat16>(report, count, shift, 1, shift == 0, function);
      }
    }
    // Both tails of the sigmoid.
    check_case<float>(report, 50'000, 0, 30, false, function);
    check_case<__nv_bfloat16>(report, 50'000, 0, 30, true, function);
  }
  if (wants_benchmark(argc, argv)) {
    benchmark<__nv_bfloat16>(2048, 14336);
    benchmark<__nv_bfloat16>(8192, 14336);
    benchmark<__nv_bfloat16>(8192, 5504);
    benchmark<float>(2048, 14336);
  }
  return finish(report);
}
