// Lab of cast: compares bit for bit with the host's rounding, then times. build/bin/cast_lab
// [--check]
#include <memory>

#include "kernels/common/elementwise_launch.h"
#include "kernels/common/fused_lab.h"

namespace {

using namespace moonshard::kernels;
using namespace moonshard::kernels::lab;

template <class To, class From>
void check_case(Report& report, int64_t count, int64_t to_shift, int64_t from_shift) {
  auto values = random_numbers<From>(count);
  // Ties, which go to the even neighbour, and a subnormal number.
  // neighbour.
  if (count > 4) {
    values[0] = rounded<From>(1.00390625);
    values[1] = rounded<From>(1.01171875);
    values[2] = rounded<From>(1e-39);
    values[3] = 0;
  }
  Array<From> from(count, from_shift);
  Array<To> to(count, to_shift);
  from.write(values);
  launch_cast(to.data(), format_of<To>(), from.data(), format_of<From>(), count, nullptr);
  std::vector<double> want(count);
  for (int64_t i = 0; i < count; ++i) want[i] = rounded<To>(values[i]);
  bool guards = true;
  report.compare(std::string(name_of<From>()) + " to " + name_of<To>() + " n " +
                     std::to_string(count) + " shifts " + std::to_string(from_shift) + " " +
                     std::to_string(to_shift),
                 to.read(guards), want, 0, 1e-300, guards);
}

template <class To, class From>
void benchmark(int64_t count) {
  const int sets = 2;
  std::vector<std::unique_ptr<Array<To>>> to;
  std::vector<std::unique_ptr<Array<From>>> from;
  for (int i = 0; i < sets; ++i) {
    to.push_back(std::make_unique<Array<To>>(count));
    from.push_back(std::make_unique<Array<From>>(count));
    check(cudaMemset(from.back()->data(), 0, count * sizeof(From)), "cudaMemset");
  }
  print_speed(
      std::string("cast ") + name_of<From>() + " to " + name_of<To>() + " " + std::to_string(count),
      median_ms([&](int i) {
        launch_cast(to[i % sets]->data(), format_of<To>(), from[i % sets]->data(),
                    format_of<From>(), count, nullptr);
      }),
      static_cast<double>(count) * (sizeof(To) + sizeof(From)));
}

}  // namespace

int main(int argc, char** argv) {
  Report report;
  for (const int64_t count : {1, 7, 8, 9, 8191, 8192, 8193, 100'003}) {
    for (const int64_t shift : {0, 1, 3}) {
      check_case<__nv_bfloat16, float>(report, count, shift, 0);
      check_case<__nv_bfloat16, float>(report, count, 0, shift);
      check_case<float, float>(report, count, 0, shift);
      check_case<__nv_bfloat16, __nv_bfloat16>(report, count, shift, shift);
    }
  }
  if (wants_benchmark(argc, argv)) {
    const int64_t llama_block = 218'112'000;  // about a block of Llama 8B
    benchmark<__nv_bfloat16, float>(llama_block);
    benchmark<float, float>(llama_block);
    benchmark<__nv_bfloat16, __nv_bfloat16>(llama_block);
  }
  return finish(report);
}
