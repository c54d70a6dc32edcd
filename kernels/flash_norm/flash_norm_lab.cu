// Checks flash_norm against the gradient in double over odd shapes, then times the blocks of
// Llama-8B and DiT-L. `--check` stops after the checks; `--portable` does all this with the kernel
// for any GPU, not with Hopper's, and keeps nothing.
#include <cuda_fp16.h>

#include <cstring>
#include <memory>

#include "kernels/common/sample_lab.cuh"
#include "kernels/flash_norm/flash_norm_launch.h"

namespace moonshard::kernels {
namespace {

using lab::Buffer;
using lab::Data;

enum class Way { Cooperative, PingPong, Portable };

std::vector<Way> ways = {Way::Cooperative, Way::PingPong};

const char* name_of(Way way) {
  return way == Way::PingPong ? "ping-pong" : way == Way::Cooperative ? "cooperative" : "portable";
}

GemmSchedule schedule_of(Way way) {
  return way == Way::PingPong ? GemmSchedule::PingPong : GemmSchedule::Cooperative;
}

int64_t scratch_doubles(const std::vector<FlashNormProblem>& problems, Way way) {
  const int count = static_cast<int>(problems.size());
  return way == Way::Portable ? flash_norm_mma_scratch(problems.data(), count)
                              : flash_norm_scratch(problems.data(), count, schedule_of(way));
}

void launch(const std::vector<FlashNormProblem>& problems, double* scratch, double* squares,
            Way way) {
  const int count = static_cast<int>(problems.size());
  if (way == Way::Portable)
    launch_flash_norm_mma(problems.data(), count, scratch, squares, nullptr);
  else
    launch_flash_norm(problems.data(), count, scratch, squares, schedule_of(way), nullptr);
}

// Sums over one sample's gradient: the exact squares, the squares of what was kept, and the worst
// error of a kept element as a share of what is allowed.
struct KeptCheck {
  double exact_squares, kept_squares, worst;
};

__global__ void kept_check_kernel(const double* value, const double* magnitude, const __half* kept,
                                  const float* units, int64_t elements, double share,
                                  KeptCheck* result) {
  __shared__ double squares[256], rounded[256], worst[256];
  const int64_t sample = blockIdx.x, offset = sample * elements;
  double mine = 0, mine_rounded = 0, mine_worst = 0;
  for (int64_t at = threadIdx.x; at < elements; at += 256) {
    const double exact = value[offset + at];
    mine += exact * exact;
    if (kept == nullptr) continue;
    const double unit = units[(offset + at) / kUnitElements];
    const double got = __half2float(kept[offset + at]) * unit;
    // One rounding, 2^-25 of a unit for numbers that are small in it, and that of the sums.
    const double allowed =
        fabs(exact) * 0x1.01p-11 + 0x1.01p-25 * unit + share * magnitude[offset + at];
    mine_worst = lab::worse(mine_worst, fabs(got - exact) / allowed);
    mine_rounded += got * got;
  }
  squares[threadIdx.x] = mine;
  rounded[threadIdx.x] = mine_rounded;
  worst[threadIdx.x] = mine_worst;
  __syncthreads();
  if (threadIdx.x != 0) return;
  KeptCheck all{};
  for (int n = 0; n < 256; ++n) {
    all.exact_squares += squares[n];
    all.kept_squares += rounded[n];
    all.worst = lab::worse(all.worst, worst[n]);
  }
  result[sample] = all;
}

constexpr int64_t kGuard = 4096;

// One launch over a list: operands, results, checks.
class Trial {
 public:
  Trial(Way way, lab::Report& report) : way_(way), report_(report) {}

  void add(int64_t samples, int64_t positions, int64_t i, int64_t o, bool keep,
           Data kind = Data::Normal, int64_t padding = 0) {
    keep &= way_ != Way::Portable && has_whole_units(i, o);
    const uint64_t seed = 17 * ++seeds_;
    operands_.push_back(
        std::make_unique<lab::Operands>(samples, positions, i, o, seed, kind, padding));
    kept_.emplace_back(keep ? samples * o * i + kGuard : 0);
    units_.emplace_back(keep ? samples * o * i / kUnitElements + kGuard : 0);
    kinds_.push_back(kind);
    problems_.push_back({operands_.back()->in, keep ? kept_.back().get() : nullptr,
                         keep ? units_.back().get() : nullptr, o * i / kUnitElements});
  }

  lab::Operands& operands(size_t n) { return *operands_[n]; }
  std::vector<float> units(size_t n) const { return units_[n].read(); }

  std::vector<double> run() {
    const int count = static_cast<int>(problems_.size());
    const int64_t samples = problems_[0].in.samples;
    const int64_t doubles = scratch_doubles(problems_, way_);
    Buffer<double> scratch(doubles + kGuard);
    Buffer<double> squares(count * samples + kGuard);
    launch(problems_, scratch.get(), squares.get(), way_);
    lab::cuda(cudaDeviceSynchronize(), "flash_norm");
    const auto untouched = [](const auto& buffer, int64_t used) {
      const auto all = buffer.read();
      const auto* bytes = reinterpret_cast<const unsigned char*>(all.data() + used);
      return std::all_of(bytes, bytes + (all.size() - static_cast<size_t>(used)) * sizeof(all[0]),
                         [](unsigned char byte) { return byte == 0xff; });
    };
    bool inside = untouched(scratch, doubles) && untouched(squares, count * samples);
    for (size_t n = 0; n < problems_.size(); ++n) {
      if (problems_[n].kept == nullptr) continue;
      inside &= untouched(kept_[n], kept_[n].count() - kGuard) &&
                untouched(units_[n], units_[n].count() - kGuard);
    }
    if (!inside) report_.line("writes past the end of a buffer", 1, 0);
    std::vector<double> result = squares.read();
    result.resize(static_cast<size_t>(count * samples));
    return result;
  }

  void check(const std::string& title) {
    const std::vector<double> squares = run();
    const std::vector<double> again = run();
    if (std::memcmp(squares.data(), again.data(), squares.size() * sizeof(double)) != 0)
      report_.line(title + ": a second run differs", 1, 0);
    for (size_t n = 0; n < problems_.size(); ++n) check_one(title, n, squares);
  }

 private:
  void check_one(const std::string& title, size_t n, const std::vector<double>& squares) {
    const FlashNormProblem& p = problems_[n];
    const lab::Exact exact(p.in);
    const double share = lab::accumulation_error(p.in.positions);
    Buffer<KeptCheck> checks(p.in.samples);
    kept_check_kernel<<<static_cast<unsigned>(p.in.samples), 256>>>(
        exact.value.get(), exact.magnitude.get(), static_cast<const __half*>(p.kept), p.units,
        p.in.o * p.in.i, share, checks.get());
    lab::cuda(cudaDeviceSynchronize(), "check");
    double worst = 0, worst_kept = 0;
    const std::vector<KeptCheck> all = checks.read();
    for (size_t b = 0; b < all.size(); ++b) {
      const double got = squares[n * static_cast<size_t>(p.in.samples) + b];
      const double wanted = p.kept != nullptr ? all[b].kept_squares : all[b].exact_squares;
      const double error = std::abs(got - wanted) / std::max(wanted, 1e-300);
      worst = lab::worse(worst, error);
      worst_kept = lab::worse(worst_kept, all[b].worst);
    }
    // Of one sign, cut-off sums are all too small.
    const double allowed = p.kept != nullptr             ? 4e-6
                           : way_ == Way::Portable       ? 4e-6
                           : kinds_[n] == Data::Positive ? 2 * share + 4e-6
                                                         : 2e-5;
    char what[200];
    std::snprintf(what, sizeof what, "%s %s %s B=%lld T=%lld %lld->%lld", title.c_str(),
                  name_of(way_), p.kept != nullptr ? "keep" : "norm",
                  static_cast<long long>(p.in.samples), static_cast<long long>(p.in.positions),
                  static_cast<long long>(p.in.i), static_cast<long long>(p.in.o));
    report_.line(what, worst, allowed);
    if (p.kept != nullptr) report_.line(std::string(what) + ": elements", worst_kept, 1);
  }

  Way way_;
  lab::Report& report_;
  uint64_t seeds_ = 0;
  std::vector<std::unique_ptr<lab::Operands>> operands_;
  std::vector<Buffer<__half>> kept_;
  std::vector<Buffer<float>> units_;
  std::vector<Data> kinds_;
  std::vector<FlashNormProblem> problems_;
};

// Infinity in one sample shows there and nowhere else; its neighbours have a unit of 1.
void check_extremes(Way way, lab::Report& report) {
  Trial trial(way, report);
  trial.add(3, 65, 128, 264, true);
  trial.add(3, 65, 128, 264, false);
  for (size_t n = 0; n < 2; ++n) {
    lab::Operands& operands = trial.operands(n);
    std::vector<__nv_bfloat16> g = operands.g.read();
    g[static_cast<size_t>(operands.in.g_sample + 5)] = __float2bfloat16(INFINITY);
    operands.g.write(g);
  }
  const std::vector<double> squares = trial.run();
  for (size_t n = 0; n < 2; ++n) {
    const bool right = !std::isfinite(squares[3 * n + 1]) && std::isfinite(squares[3 * n]) &&
                       std::isfinite(squares[3 * n + 2]);
    report.line(
        std::string("infinity in sample 1 of 3, ") + (n == 0 ? "keep " : "norm ") + name_of(way),
        right ? 0 : 1, 0);
  }
  if (way == Way::Portable) return;
  const std::vector<float> units = trial.units(0);
  double wrong = units[264 + 5] == 1.0f ? 0 : 1;
  for (size_t n = 0; n < 3 * 264; ++n) {
    int exponent;
    wrong += std::frexp(units[n], &exponent) != 0.5f;
  }
  report.line(std::string("units are powers of two, ") + name_of(way), wrong, 0);
}

// Gradients of samples, and rows within them, that are many orders of magnitude apart.
void check_sizes(Way way, lab::Report& report) {
  Trial trial(way, report);
  trial.add(4, 70, 384, 200, true);
  lab::Operands& operands = trial.operands(0);
  std::vector<__nv_bfloat16> g = operands.g.read();
  const SampleOperands& in = operands.in;
  for (int64_t b = 0; b < in.samples; ++b) {
    for (int64_t t = 0; t < in.positions; ++t) {
      for (int64_t o = 0; o < in.o; ++o) {
        __nv_bfloat16& one = g[static_cast<size_t>(b * in.g_sample + t * in.g_row + o)];
        const float size = b == 3 ? 0.0f : std::ldexp(1.0f, static_cast<int>(30 * b - o % 50));
        one = __float2bfloat16(__bfloat162float(one) * size);
      }
    }
  }
  operands.g.write(g);
  trial.check("sizes far apart");
}

void check_all(lab::Report& report) {
  const int64_t lengths[] = {1, 7, 64, 65, 300}, widths[] = {8, 64, 128, 136, 384, 520, 16};
  for (const Way way : ways) {
    int turn = 0;
    for (const int64_t positions : lengths) {
      for (const int64_t samples : {1, 2, 3, 5}) {
        Trial trial(way, report);
        for (int n = 0; n < 3; ++n, ++turn) {
          trial.add(samples, positions, widths[turn % 7], widths[(turn * 3 + turn / 7) % 7],
                    turn % 4 != 0, Data::Normal, turn % 3 == 0 ? 8 : 0);
        }
        trial.check("list of 3");
      }
    }
    Trial many(way, report);  // more than one launch, different lengths
    for (int n = 0; n < 19; ++n)
      many.add(2, 40 + 37 * n, widths[n % 7], widths[(n + 2) % 7], n % 3 != 0);
    many.check("list of 19");
    for (const Data kind : {Data::Positive, Data::Cancelling}) {
      Trial trial(way, report);
      trial.add(2, 512, 768, 1280, false, kind);
      trial.add(2, 512, 768, 1280, true, kind);
      trial.check(kind == Data::Positive ? "one sign" : "cancelling");
    }
    check_extremes(way, report);
    if (way != Way::Portable) check_sizes(way, report);
  }
}

void check_large(lab::Report& report) {
  for (const Way way : ways) {
    Trial trial(way, report);
    trial.add(2, 1024, 4096, 4096, false);
    trial.add(2, 1024, 4096, 1024, true);
    trial.add(2, 1000, 1152, 5000, true);
    trial.add(2, 1024, 4096, 4096, false, Data::Cancelling);
    trial.check("large");
  }
}

void benchmark(const char* title, const std::vector<lab::Layer>& layers, int64_t samples,
               int64_t positions) {
  const lab::Block block(layers, samples, positions);
  Buffer<__half> kept(block.parameters * samples);
  Buffer<float> units(block.parameters * samples / kUnitElements);
  Buffer<double> squares(static_cast<int64_t>(layers.size()) * samples);
  std::vector<FlashNormProblem> problems[2];
  int64_t used = 0;
  for (const SampleOperands& in : block.problems) {
    problems[0].push_back({in, nullptr, nullptr});
    problems[1].push_back(
        {in, kept.get() + used, units.get() + used / kUnitElements, in.o * in.i / kUnitElements});
    used += in.samples * in.o * in.i;
  }
  int64_t doubles = 0;
  for (const Way way : ways) doubles = std::max(doubles, scratch_doubles(problems[0], way));
  Buffer<double> scratch(doubles);
  std::vector<lab::Contender> contenders;
  for (const Way way : ways) {
    for (const int keep : {0, 1}) {
      if (keep != 0 && way == Way::Portable) continue;
      contenders.push_back(
          {std::string(keep != 0 ? "keep, " : "norm, ") + name_of(way),
           [&, keep, way] { launch(problems[keep], scratch.get(), squares.get(), way); },
           block.flops});
    }
  }
  char line[200];
  std::snprintf(line, sizeof line, "%s, B=%lld, T=%lld, one launch (peak 989 TFLOP/s: %.3f ms)",
                title, static_cast<long long>(samples), static_cast<long long>(positions),
                block.flops / 989e12 * 1e3);
  lab::race(line, contenders, "TFLOP/s");
}

}  // namespace
}  // namespace moonshard::kernels

int main(int argc, char** argv) {
  using namespace moonshard::kernels;
  lab::Report report;
  bool checks_only = false;
  for (int n = 1; n < argc; ++n) {
    checks_only |= std::strcmp(argv[n], "--check") == 0;
    if (std::strcmp(argv[n], "--portable") == 0) ways = {Way::Portable};
  }
  check_all(report);
  if (!checks_only) check_large(report);
  if (checks_only || report.failed()) return report.finish();
  for (const int64_t positions : {1024, 2048, 4096})
    benchmark("Llama-8B block", lab::llama_block(), 2, positions);
  benchmark("DiT-L block", lab::dit_block(), 16, 1024);
  return report.finish();
}
