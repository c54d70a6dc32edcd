// Lab of cross_entropy: compares with double precision, then times. build/bin/cross_entropy_lab
// [--check]
#include <memory>

#include "kernels/common/fused_lab.h"
#include "kernels/cross_entropy/cross_entropy_launch.h"

namespace {

using namespace moonshard::kernels;
using namespace moonshard::kernels::lab;

constexpr int64_t kIgnored = -100;

int64_t* upload(const std::vector<int64_t>& values) {
  int64_t* data = nullptr;
  check(cudaMalloc(&data, values.size() * sizeof(int64_t)), "cudaMalloc");
  check(cudaMemcpy(data, values.data(), values.size() * sizeof(int64_t), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  return data;
}

template <class T>
void check_case(Report& report, int64_t rows, int64_t width, int64_t shift, double std,
                bool overwrite, double cap = 0) {
  const std::string what = std::string(name_of<T>()) + " [" + std::to_string(rows) + "," +
                           std::to_string(width) + "] shift " + std::to_string(shift) + " std " +
                           std::to_string(static_cast<int>(std)) + (overwrite ? " in place" : "") +
                           (cap > 0 ? " capped" : "");
  auto scores = random_numbers<T>(rows * width, std);
  // A peak far above the rest, at the end: every running sum is corrected by it.
  scores[width - 1] = rounded<T>(scores[width - 1] + 60 * std);
  const auto factors = random_numbers<float>(rows);
  std::vector<int64_t> labels(rows);
  for (int64_t r = 0; r < rows; ++r) labels[r] = r % 4 == 3 ? kIgnored : (r * 7919 + 3) % width;
  labels[0] = width - 1;
  Array<T> d_scores(rows * width, shift), d_gradient(rows * width);
  Array<float> d_losses(rows), d_sums(rows), d_factors(rows);
  d_scores.write(scores);
  d_factors.write(factors);
  CrossEntropy p;
  p.scores = d_scores.data();
  p.labels = upload(labels);
  p.ignored_label = kIgnored;
  p.rows = rows;
  p.width = width;
  p.cap = static_cast<float>(cap);
  p.format = format_of<T>();
  launch_cross_entropy_forward(p, d_losses.data(), d_sums.data(), nullptr);
  launch_cross_entropy_backward(p, d_sums.data(), d_factors.data(),
                                overwrite ? d_scores.data() : d_gradient.data(), nullptr);
  std::vector<double> losses(rows), sums(rows), gradient(rows * width);
  double size = 1;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> row(scores.begin() + r * width, scores.begin() + (r + 1) * width);
    std::vector<double> slopes(width, 1);
    for (int64_t i = 0; i < width && cap > 0; ++i) {
      const double bent = std::tanh(row[i] / cap);
      row[i] = cap * bent;
      slopes[i] = 1 - bent * bent;
    }
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += std::exp(row[i] - largest);
    sums[r] = largest + std::log(sum);
    size = std::max(size, std::fabs(sums[r]));
    const bool ignored = labels[r] == kIgnored;
    losses[r] = ignored ? 0 : sums[r] - row[labels[r]];
    for (int64_t i = 0; i < width; ++i) {
      const double chance = std::exp(row[i] - sums[r]);
      gradient[r * width + i] =
          ignored ? 0 : factors[r] * slopes[i] * (i == labels[r] ? chance - 1 : chance);
    }
  }
  bool guards = true;
  report.compare("log sums " + what, d_sums.read(guards), sums, 2e-6, 2e-6, guards);
  report.compare("losses " + what, d_losses.read(guards), losses, 2e-6, 2e-6 * size, guards);
  // The log sum's rounding is an error of every exponential relative to itself; at the label the
  // chance is close to 1 and cancels.
  const double relative = (sizeof(T) == 2 ? unit_of<T>() : 0) + 4e-6 * (1 + size / 10);
  report.compare("gradient " + what, (overwrite ? d_scores : d_gradient).read(guards), gradient,
                 relative, 4e-6 * (1 + size / 10), guards);
  check(cudaFree(const_cast<int64_t*>(p.labels)), "cudaFree");
}

template <class T>
void benchmark(int64_t rows, int64_t width) {
  const double bytes = static_cast<double>(rows * width * sizeof(T));
  Array<T> scores(rows * width), gradient(rows * width);
  check(cudaMemset(scores.data(), 0, rows * width * sizeof(T)), "cudaMemset");
  Array<float> losses(rows), sums(rows), factors(rows);
  std::vector<int64_t> labels(rows);
  for (int64_t r = 0; r < rows; ++r) labels[r] = r * 7919 % width;
  CrossEntropy p;
  p.scores = scores.data();
  p.labels = upload(labels);
  p.ignored_label = kIgnored;
  p.rows = rows;
  p.width = width;
  p.format = format_of<T>();
  const std::string what =
      std::string(name_of<T>()) + " [" + std::to_string(rows) + ", " + std::to_string(width) + "]";
  print_speed("cross_entropy forward " + what, median_ms([&](int) {
                launch_cross_entropy_forward(p, losses.data(), sums.data(), nullptr);
              }),
              bytes);
  print_speed("cross_entropy backward " + what, median_ms([&](int) {
                launch_cross_entropy_backward(p, sums.data(), factors.data(), gradient.data(),
                                              nullptr);
              }),
              2 * bytes);
  check(cudaFree(const_cast<int64_t*>(p.labels)), "cudaFree");
}

template <class T>
void check_shapes(Report& report) {
  for (const int64_t width : {1, 2, 7, 8, 512, 1000, 4095, 4096, 4104, 8192, 20'001, 128'256}) {
    const int64_t rows = width > 10'000 ? 5 : 9;
    check_case<T>(report, rows, width, 0, 1, true);
    check_case<T>(report, rows, width, 1, 1, false);
    check_case<T>(report, rows, width, 0, 10, false);
    check_case<T>(report, rows, width, 0, 10, width % 2 == 0, 30);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Report report;
  check_shapes<float>(report);
  check_shapes<__nv_bfloat16>(report);
  if (wants_benchmark(argc, argv)) {
    benchmark<__nv_bfloat16>(8192, 151'936);
    benchmark<__nv_bfloat16>(2048, 128'256);
    benchmark<float>(2048, 128'256);
  }
  return finish(report);
}
