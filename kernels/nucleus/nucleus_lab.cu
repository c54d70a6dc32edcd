// Lab of nucleus: compares with a sort on the host, then times. build/bin/nucleus_lab [--check]
#include <memory>

#include "kernels/common/fused_lab.h"
#include "kernels/nucleus/nucleus_launch.h"

namespace {

using namespace moonshard::kernels;
using namespace moonshard::kernels::lab;

std::vector<int32_t> random_parts(int64_t rows, int64_t width, double sharpness) {
  std::mt19937_64 random(width);
  std::normal_distribution<double> score(0, sharpness);
  std::vector<int32_t> parts(rows * width);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> weights(width);
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(score(random));
    for (int64_t i = 0; i < width; ++i)
      parts[r * width + i] = static_cast<int32_t>(std::lround(weights[i] / sum * (1 << 30)));
  }
  return parts;
}

class OnDevice {
 public:
  explicit OnDevice(const std::vector<int32_t>& values, int64_t shift = 0) {
    check(cudaMalloc(&memory_, (values.size() + shift) * sizeof(int32_t)), "cudaMalloc");
    data_ = memory_ + shift;
    check(cudaMemcpy(data_, values.data(), values.size() * sizeof(int32_t), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  ~OnDevice() { cudaFree(memory_); }
  int32_t* data() const { return data_; }

 private:
  int32_t *memory_ = nullptr, *data_ = nullptr;
};

int64_t wrong_rows(int64_t rows, int64_t width, double sharpness, double share, int64_t shift) {
  const auto parts = random_parts(rows, width, sharpness);
  const OnDevice there(parts, shift), borders(std::vector<int32_t>(rows, -1));
  launch_nucleus_border(there.data(), rows, width, share, borders.data(), nullptr);
  std::vector<int32_t> found(rows);
  check(cudaMemcpy(found.data(), borders.data(), rows * sizeof(int32_t), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  int64_t wrong = 0;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int32_t> row(parts.begin() + r * width, parts.begin() + (r + 1) * width);
    std::sort(row.rbegin(), row.rend());
    int64_t all = 0, sum = 0;
    for (const int32_t part : row) all += part;
    const auto wanted = static_cast<int64_t>(std::ceil(static_cast<double>(all) * share));
    size_t last = 0;
    while (last + 1 < row.size() && (sum += row[last]) < wanted) ++last;
    wrong += found[r] != row[last];
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t wrong = 0, rows = 0;
  for (const int64_t width : {1, 3, 4, 1000, 4096, 4099, 128'256}) {
    for (const double sharpness : {0.0, 1.0, 4.0}) {
      for (const double share : {0.01, 0.5, 0.9, 0.999}) {
        for (const int64_t shift : {0, 1}) {
          wrong += wrong_rows(5, width, sharpness, share, shift);
          rows += 5;
        }
      }
    }
  }
  std::printf("%lld of %lld borders right\n", static_cast<long long>(rows - wrong),
              static_cast<long long>(rows));
  if (wants_benchmark(argc, argv)) {
    const auto parts = random_parts(64, 128'256, 2);
    const OnDevice there(parts), borders(std::vector<int32_t>(64, 0));
    print_speed("nucleus_border [64, 128256]", median_ms([&](int) {
                  launch_nucleus_border(there.data(), 64, 128'256, 0.9, borders.data(), nullptr);
                }),
                static_cast<double>(parts.size() * sizeof(int32_t)));
  }
  return wrong == 0 ? 0 : 1;
}
