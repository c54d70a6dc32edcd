// Lab of sample_dropout: compares with the host, exactly, then times.
// build/bin/sample_dropout_lab [--check]
#include <memory>

#include "kernels/common/fused_lab.h"
#include "kernels/sample_dropout/sample_dropout_launch.h"

namespace {

using namespace moonshard::kernels;
using namespace moonshard::kernels::lab;

class Words {
 public:
  explicit Words(int64_t samples) : host_(samples) {
    for (int64_t i = 0; i < samples; ++i) host_[i] = static_cast<int64_t>(mixed_word(i + 11));
    check(cudaMalloc(&device_, samples * sizeof(int64_t)), "cudaMalloc");
    check(cudaMemcpy(device_, host_.data(), samples * sizeof(int64_t), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  ~Words() { cudaFree(device_); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  const int64_t* host() const { return host_.data(); }
  const int64_t* device() const { return device_; }

 private:
  std::vector<int64_t> host_;
  int64_t* device_ = nullptr;
};

template <class T>
RawDropout problem(const Words& words, int64_t samples, int64_t numbers, const T* from, T* to,
                   bool adds) {
  RawDropout p;
  p.from = from;
  p.to = to;
  p.words = words.device();
  p.samples = samples;
  p.numbers = numbers;
  p.stream = 0x123456789abcdefull;
  p.lowest = 6554 - 32768;  // a tenth is dropped
  p.scale = rounded<T>(1 / (1 - 6554 / 65536.0));
  p.adds = adds;
  p.format = format_of<T>();
  return p;
}

template <class T>
void check_case(Report& report, int64_t samples, int64_t numbers, int64_t shift, bool adds) {
  const int64_t count = samples * numbers;
  const std::string what = std::string(name_of<T>()) + " [" + std::to_string(samples) + ", " +
                           std::to_string(numbers) + "] shift " + std::to_string(shift) +
                           (adds ? " added" : "");
  const Words words(samples);
  const auto x = random_numbers<T>(count), sum = random_numbers<T>(count);
  Array<T> d_x(count, shift), d_to(count);
  d_x.write(x);
  if (adds) d_to.write(sum);
  RawDropout p = problem<T>(words, samples, numbers, d_x.data(), d_to.data(), adds);
  launch_sample_dropout(p, nullptr);
  p.words = words.host();
  std::vector<double> want(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = i % numbers;
    const uint64_t coins = dropout_coins(p, i / numbers, place / kCoinsOfWord);
    const bool stays = coin_stays(p, coins, static_cast<int>(place % kCoinsOfWord));
    const double kept = rounded<T>(stays ? x[i] * p.scale : 0.0);
    want[i] = adds ? rounded<T>(sum[i] + kept) : kept;
  }
  bool guards = true;
  report.compare(what, d_to.read(guards), want, 0, 1e-30, guards);
}

template <class T>
void benchmark(int64_t samples, int64_t numbers) {
  const int64_t count = samples * numbers;
  const int sets = static_cast<int>(std::max<int64_t>(2, 400'000'000 / (count * 2 * sizeof(T))));
  const Words words(samples);
  std::vector<std::unique_ptr<Array<T>>> memory;
  for (int i = 0; i < 2 * sets; ++i) {
    memory.push_back(std::make_unique<Array<T>>(count));
    check(cudaMemset(memory.back()->data(), 0, count * sizeof(T)), "cudaMemset");
  }
  const std::string what = std::string(name_of<T>()) + " [" + std::to_string(samples) + ", " +
                           std::to_string(numbers) + "]";
  for (const bool adds : {false, true}) {
    print_speed((adds ? "sample_dropout added " : "sample_dropout ") + what, median_ms([&](int i) {
                  T* from = memory[i % sets * 2]->data();
                  T* to = memory[i % sets * 2 + 1]->data();
                  launch_sample_dropout(problem<T>(words, samples, numbers, from, to, adds),
                                        nullptr);
                }),
                (adds ? 3.0 : 2.0) * static_cast<double>(count * sizeof(T)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Report report;
  for (const bool adds : {false, true}) {
    for (const int64_t numbers : {1, 3, 8, 37, 2048, 100'008}) {
      for (const int64_t shift : {0, 1}) {
        check_case<float>(report, 3, numbers, shift, adds);
        check_case<__nv_bfloat16>(report, 3, numbers, shift, adds);
      }
    }
    check_case<float>(report, 70'000, 8, 0, adds);
    check_case<__nv_bfloat16>(report, 70'001, 5, 0, adds);
  }
  if (wants_benchmark(argc, argv)) {
    benchmark<float>(16, 1024 * 2048);
    benchmark<__nv_bfloat16>(16, 1024 * 2048);
    benchmark<__nv_bfloat16>(16, 1024 * 8192);
  }
  return finish(report);
}
