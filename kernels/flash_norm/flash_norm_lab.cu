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

int64_t scratch_floats(const std::vector<FlashNormProblem>& problems, Way way) {
  const int count = static_cast<int>(problems.size());
  return way == Way::Portable ? flash_norm_mma_scratch(problems.data(), count)
                              : flash_norm_scratch(problems.data(), count, schedule_of(way));
}

void launch(const std::vector<FlashNormProblem>& problems, float* scratch, double* squares,
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
                                  const float* scales, int64_t elements, double share,
                                  KeptCheck* result) {
  __shared__ double squares[256], rounded[256], worst[256];
  const int64_t sample = blockIdx.x, offset = sample * elements;
  const double scale = scales != nullptr ? scales[sample] : 1.0;
  double mine = 0, mine_rounded = 0, mine_worst = 0;
  for (int64_t at = threadIdx.x; at < elements; at += 256) {
    const double exact = value[offset + at];
    mine += exact * exact;
    if (kept == nullptr) continue;
    const double got = __half2float(kept[offset + at]);
    const double wanted = fmin(fmax(exact * scale, -65504.0), 65504.0);
    const double allowed =
        fabs(wanted) * 0x1.01p-11 + 0x1.01p-25 + share * magnitude[offset + at] * scale;
    const double error = fabs(got - wanted) / allowed;
    mine_worst = lab::worse(mine_worst, error);
    mine_rounded += got / scale * (got / scale);
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

  void add(int64_t samples, int64_t positions, int64_t i, int64_t o, bool keep, float scale = 1024,
           Data kind = Data::Normal, int64_t padding = 0) {
    keep &= way_ != Way::Portable;
    const uint64_t seed = 17 * ++seeds_;
    operands_.push_back(
        std::make_unique<lab::Operands>(samples, positions, i, o, seed, kind, padding));
    kept_.emplace_back(keep ? samples * o * i + kGuard : 0);
    scales_.emplace_back(samples);
    std::vector<float> scales;
    for (int64_t b = 0; b < samples; ++b) scales.push_back(scale * (b % 2 == 0 ? 1.0f : 0.25f));
    scales_.back().write(scales);
    kinds_.push_back(kind);
    problems_.push_back({operands_.back()->in, keep ? kept_.back().get() : nullptr,
                         keep ? scales_.back().get() : nullptr});
  }

  lab::Operands& operands(size_t n) { return *operands_[n]; }
  __half* kept(size_t n) { return kept_[n].get(); }

  std::vector<double> run() {
    const int count = static_cast<int>(problems_.size());
    const int64_t samples = problems_[0].in.samples;
    const int64_t floats = scratch_floats(problems_, way_);
    Buffer<float> scratch(floats + kGuard);
    Buffer<double> squares(count * samples + kGuard);
    launch(problems_, scratch.get(), squares.get(), way_);
    lab::cuda(cudaDeviceSynchronize(), "flash_norm");
    const auto untouched = [](const auto& buffer, int64_t used) {
      const auto all = buffer.read();
      const auto* bytes = reinterpret_cast<const unsigned char*>(all.data() + used);
      return std::all_of(bytes, bytes + (all.size() - static_cast<size_t>(used)) * sizeof(all[0]),
                         [](unsigned char byte) { return byte == 0xff; });
    };
    bool inside = untouched(scratch, floats) && untouched(squares, count * samples);
    for (size_t n = 0; n < problems_.size(); ++n) {
      if (problems_[n].kept != nullptr) inside &= untouched(kept_[n], kept_[n].count() - kGuard);
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
        exact.value.get(), exact.magnitude.get(), static_cast<const __half*>(p.kept), p.scale,
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
  std::vector<Buffer<float>> scales_;
  std::vector<Data> kinds_;
  std::vector<FlashNormProblem> problems_;
};

// Infinity in one sample shows there and nowhere else; what float16 cannot hold is clamped.
void check_extremes(Way way, lab::Report& report) {
  Trial trial(way, report);
  trial.add(3, 65, 136, 264, true);
  trial.add(3, 65, 136, 264, false);
  trial.add(3, 65, 136, 264, true, 0x1p40f);  // everything is too large
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
  std::vector<__half> kept(3 * 136 * 264);
  lab::cuda(cudaMemcpy(kept.data(), trial.kept(2), kept.size() * 2, cudaMemcpyDeviceToHost),
            "read");
  double above = 0;
  for (const __half value : kept) above += !(std::abs(__half2float(value)) <= 65504.0f);
  report.line(std::string("too large for float16 is clamped, ") + name_of(way), above, 0);
}

void check_all(lab::Report& report) {
  const int64_t lengths[] = {1, 7, 64, 65, 300}, widths[] = {8, 24, 136, 264, 520};
  for (const Way way : ways) {
    int turn = 0;
    for (const int64_t positions : lengths) {
      for (const int64_t samples : {1, 2, 3, 5}) {
        Trial trial(way, report);
        for (int n = 0; n < 3; ++n, ++turn) {
          trial.add(samples, positions, widths[turn % 5], widths[(turn * 3 + turn / 5) % 5],
                    turn % 2 == 0, 1024, Data::Normal, turn % 3 == 0 ? 8 : 0);
        }
        trial.check("list of 3");
      }
    }
    Trial many(way, report);  // more than one launch, different lengths
    for (int n = 0; n < 19; ++n)
      many.add(2, 40 + 37 * n, widths[n % 5], widths[(n + 2) % 5], n % 3 == 0);
    many.check("list of 19");
    for (const Data kind : {Data::Positive, Data::Cancelling}) {
      Trial trial(way, report);
      trial.add(2, 512, 768, 1280, false, 1024, kind);
      trial.add(2, 512, 768, 1280, true, 1024, kind);
      trial.check(kind == Data::Positive ? "one sign" : "cancelling");
    }
    check_extremes(way, report);
  }
}

void check_large(lab::Report& report) {
  for (const Way way : ways) {
    Trial trial(way, report);
    trial.add(2, 1024, 4096, 4096, false);
    trial.add(2, 1024, 4096, 1024, true, 512);
    trial.add(2, 1000, 1096, 5000, true, 512);
    trial.add(2, 1024, 4096, 4096, false, 1, Data::Cancelling);
    trial.check("large");
  }
}

void benchmark(const char* title, const std::vector<lab::Layer>& layers, int64_t samples,
               int64_t positions) {
  const lab::Block block(layers, samples, positions);
  Buffer<__half> kept(block.parameters * samples);
  Buffer<float> scale(samples);
  scale.write(std::vector<float>(static_cast<size_t>(samples), 64.0f));
  Buffer<double> squares(static_cast<int64_t>(layers.size()) * samples);
  std::vector<FlashNormProblem> problems[2];
  int64_t used = 0;
  for (const SampleOperands& in : block.problems) {
    problems[0].push_back({in, nullptr, nullptr});
    problems[1].push_back({in, kept.get() + used, scale.get()});
    used += in.samples * in.o * in.i;
  }
  int64_t floats = 0;
  for (const Way way : ways) floats = std::max(floats, scratch_floats(problems[0], way));
  Buffer<float> scratch(floats);
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
