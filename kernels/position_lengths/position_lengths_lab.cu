// Checks position_lengths against double arithmetic on the host, then times it on
// the blocks of Llama-8B and DiT-L. `--check` alone stops after the checks.
#include <cstring>
#include <memory>

#include "kernels/common/sample_lab.cuh"
#include "kernels/position_lengths/position_lengths_launch.h"

namespace moonshard::kernels {
namespace {

using lab::Buffer;

template <class T>
struct Rows {
  Rows(int64_t samples, int64_t positions, int64_t width, int64_t padding, uint64_t seed,
       float size)
      : data(samples * (positions * (width + padding) + padding)) {
    rows.data = data.get();
    rows.samples = samples;
    rows.positions = positions;
    rows.width = width;
    rows.row_stride = width + padding;
    rows.sample_stride = positions * rows.row_stride + padding;
    rows.bfloat16 = sizeof(T) == 2;
    lab::fill_kernel<<<256, 256>>>(data.get(), samples, positions, width, rows.row_stride,
                                   rows.sample_stride, seed, size, lab::Data::Normal, false);
    lab::cuda(cudaDeviceSynchronize(), "fill");
  }

  std::vector<double> exact() const {
    const std::vector<T> all = data.read();
    std::vector<double> lengths;
    for (int64_t sample = 0; sample < rows.samples; ++sample) {
      for (int64_t position = 0; position < rows.positions; ++position) {
        double squares = 0;
        for (int64_t column = 0; column < rows.width; ++column) {
          const double x = static_cast<float>(all[static_cast<size_t>(
              sample * rows.sample_stride + position * rows.row_stride + column)]);
          squares += x * x;
        }
        lengths.push_back(std::sqrt(squares));
      }
    }
    return lengths;
  }

  Buffer<T> data;
  LengthRows rows;
};

template <class T>
void check(lab::Report& report, int64_t samples, int64_t positions, const int64_t (&widths)[3],
           int64_t padding, float size) {
  // Two problems that share their inputs.
  const Rows<T> a(samples, positions, widths[0], padding, 1, 1.0f),
      g(samples, positions, widths[1], padding, 2, size),
      h(samples, positions, widths[2], padding, 3, size);
  const LengthRows rows[] = {a.rows, g.rows, h.rows};
  const LengthPair pairs[] = {{0, 1}, {0, 2}};
  Buffer<double> scratch(3 * samples * positions), lengths(2 * samples);
  launch_position_lengths(rows, 3, pairs, 2, scratch.get(), lengths.get(), nullptr, nullptr);
  lab::cuda(cudaDeviceSynchronize(), "position_lengths");
  const std::vector<double> got = lengths.read();
  const std::vector<double> exact[] = {a.exact(), g.exact(), h.exact()};
  double above = 0, below = 0;
  for (size_t pair = 0; pair < 2; ++pair) {
    for (int64_t sample = 0; sample < samples; ++sample) {
      double wanted = 0;
      for (int64_t t = 0; t < positions; ++t) {
        const size_t at = static_cast<size_t>(sample * positions + t);
        wanted += exact[0][at] * exact[pair + 1][at];
      }
      const double length = got[pair * static_cast<size_t>(samples) + static_cast<size_t>(sample)];
      const double ratio = wanted == 0 && length == 0 ? 1 : length / wanted;
      above = lab::worse(above, ratio - 1);
      below = lab::worse(below, 1 - ratio);
    }
  }
  char what[200];
  std::snprintf(what, sizeof what, "%s B=%lld T=%lld widths %lld %lld %lld padding %lld size %g",
                sizeof(T) == 2 ? "bfloat16" : "float32", static_cast<long long>(samples),
                static_cast<long long>(positions), static_cast<long long>(widths[0]),
                static_cast<long long>(widths[1]), static_cast<long long>(widths[2]),
                static_cast<long long>(padding), size);
  report.line(std::string(what) + ", above", above, 2e-5);
  report.line(std::string(what) + ", below", below, 0);
}

void check_all(lab::Report& report) {
  for (const float size : {1.0f, 1e-4f, 1e-25f, 1e25f, 0.0f}) {
    check<__nv_bfloat16>(report, 2, 7, {8, 24, 136}, 0, size);
    check<__nv_bfloat16>(report, 3, 65, {520, 1024, 14336}, 8, size);
    check<__nv_bfloat16>(report, 1, 300, {9, 33, 1}, 3, size);  // no 16-byte loads
    check<float>(report, 2, 65, {8, 1000, 1028}, 4, size);
    check<float>(report, 5, 1, {3, 77, 4099}, 1, size);
  }
}

void benchmark(const char* title, const std::vector<lab::Layer>& layers, int64_t samples,
               int64_t positions) {
  const lab::Block block(layers, samples, positions);
  std::vector<LengthRows> rows;
  std::vector<LengthPair> pairs;
  std::vector<const void*> seen;
  double bytes = 0;
  const auto number_of = [&](const void* data, int64_t width, int64_t row, int64_t sample) {
    for (size_t n = 0; n < seen.size(); ++n)
      if (seen[n] == data) return static_cast<int>(n);
    seen.push_back(data);
    rows.push_back({data, samples, positions, width, row, sample, true});
    bytes += 2.0 * static_cast<double>(samples * positions * width);
    return static_cast<int>(rows.size()) - 1;
  };
  for (const SampleOperands& in : block.problems) {
    const int a = number_of(in.a, in.i, in.a_row, in.a_sample);
    pairs.push_back({a, number_of(in.g, in.o, in.g_row, in.g_sample)});
  }
  Buffer<double> scratch(static_cast<int64_t>(rows.size()) * samples * positions),
      lengths(static_cast<int64_t>(pairs.size()) * samples);
  std::vector<lab::Contender> contenders;
  contenders.push_back({"position_lengths",
                        [&] {
                          launch_position_lengths(rows.data(), static_cast<int>(rows.size()),
                                                  pairs.data(), static_cast<int>(pairs.size()),
                                                  scratch.get(), lengths.get(), nullptr, nullptr);
                        },
                        bytes});
  char line[200];
  std::snprintf(line, sizeof line, "%s, B=%lld, T=%lld (4.8 TB/s: %.4f ms)", title,
                static_cast<long long>(samples), static_cast<long long>(positions),
                bytes / 4.8e12 * 1e3);
  lab::race(line, contenders, "TB/s");
}

}  // namespace
}  // namespace moonshard::kernels

int main(int argc, char** argv) {
  using namespace moonshard::kernels;
  lab::Report report;
  check_all(report);
  if (report.failed() || (argc > 1 && std::strcmp(argv[1], "--check") == 0)) return report.finish();
  for (const int64_t positions : {1024, 2048, 4096})
    benchmark("Llama-8B block", lab::llama_block(), 2, positions);
  benchmark("DiT-L block", lab::dit_block(), 16, 1024);
  return report.finish();
}
