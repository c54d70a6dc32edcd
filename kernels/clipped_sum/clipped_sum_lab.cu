// Checks clipped_sum against the sum in double over odd shapes, dropped samples and extreme
// factors, then times the blocks of Llama-8B, DiT-L and DiT-XL, small layers with and without
// splits, and a layer of one position.
// `--check` alone stops after the checks.
#include <cstring>
#include <memory>

#include "kernels/clipped_sum/clipped_sum_launch.h"
#include "kernels/common/sample_lab.cuh"

namespace moonshard::kernels {
namespace {

using lab::Buffer;
using lab::Data;

constexpr GemmSchedule kSchedules[] = {GemmSchedule::Cooperative, GemmSchedule::Narrow,
                                       GemmSchedule::PingPong};

const char* name_of(GemmSchedule schedule) {
  return schedule == GemmSchedule::PingPong ? "ping-pong"
         : schedule == GemmSchedule::Narrow ? "narrow"
                                            : "cooperative";
}

// Worst error as a share of (share * sum without signs + one rounding of the result), per block.
__global__ void sum_check_kernel(const double* value, const double* magnitude, const float* factors,
                                 int64_t samples, int64_t o, int64_t i, const float* before,
                                 const float* out, int64_t out_row, double share, double* worst) {
  __shared__ double errors[256];
  double mine = 0;
  for (int64_t at = blockIdx.x * 256 + threadIdx.x; at < o * i; at += gridDim.x * 256) {
    const int64_t place = at / i * out_row + at % i;
    double wanted = before != nullptr ? before[place] : 0.0, size = fabs(wanted);
    for (int64_t b = 0; b < samples; ++b) {
      if (factors[b] == 0) continue;
      wanted += factors[b] * value[b * o * i + at];
      size += fabs(factors[b]) * magnitude[b * o * i + at];
    }
    const double error = fabs(out[place] - wanted) / (share * size + 1e-37);
    mine = lab::worse(mine, error);
  }
  errors[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int n = 1; n < 256; ++n) mine = lab::worse(mine, errors[n]);
  worst[blockIdx.x] = mine;
}

class Trial {
 public:
  Trial(GemmSchedule schedule, int splits, std::vector<float> factors, lab::Report& report)
      : schedule_(schedule),
        splits_(splits),
        report_(report),
        values_(std::move(factors)),
        factors_(static_cast<int64_t>(values_.size())) {
    factors_.write(values_);
  }

  void add(int64_t positions, int64_t i, int64_t o, Data kind = Data::Normal, int64_t padding = 0) {
    operands_.push_back(std::make_unique<lab::Operands>(
        static_cast<int64_t>(values_.size()), positions, i, o, 31 * ++seeds_, kind, padding));
    const int64_t row = i + 4 * padding;
    out_.emplace_back(o * row);
    problems_.push_back({operands_.back()->in, out_.back().get(), row});
  }

  lab::Operands& operands(size_t n) { return *operands_[n]; }
  void by_outer_products() { outer_ = true; }

  void check(const std::string& title) {
    for (const bool accumulate : {false, true}) {
      std::vector<std::vector<float>> before;
      for (size_t n = 0; n < out_.size(); ++n) {
        out_[n].poison();
        before.push_back(out_[n].read());
        if (!accumulate) continue;
        const SampleOperands& in = problems_[n].in;
        for (int64_t row = 0; row < in.o; ++row) {
          for (int64_t column = 0; column < in.i; ++column) {
            before[n][static_cast<size_t>(row * problems_[n].out_row + column)] =
                0.01f * static_cast<float>((row * 7 + column * 3) % 101 - 50);
          }
        }
        out_[n].write(before[n]);
      }
      run(accumulate);
      std::vector<std::vector<float>> first;
      for (size_t n = 0; n < out_.size(); ++n) {
        first.push_back(out_[n].read());
        check_one(title + (accumulate ? " +" : ""), n, accumulate, before[n]);
        out_[n].write(before[n]);
      }
      run(accumulate);
      for (size_t n = 0; n < out_.size(); ++n) {
        const std::vector<float> again = out_[n].read();
        if (std::memcmp(again.data(), first[n].data(), again.size() * sizeof(float)) != 0)
          report_.line(title + ": a second run differs", 1, 0);
      }
    }
  }

 private:
  void run(bool accumulate) {
    const int count = static_cast<int>(problems_.size());
    if (outer_) {
      std::vector<OuterSumProblem> list;
      for (const ClippedSumProblem& p : problems_) list.push_back({p.in, true, p.out, p.out_row});
      launch_outer_sum(list.data(), count, factors_.get(), accumulate, nullptr);
      lab::cuda(cudaDeviceSynchronize(), "clipped_sum of one position");
      return;
    }
    const ClippedSumPlan plan = plan_clipped_sum(problems_.data(), count, {schedule_, splits_, 0});
    Buffer<float> scratch(plan.scratch);
    launch_clipped_sum(problems_.data(), count, factors_.get(), accumulate, plan, scratch.get(),
                       nullptr);
    lab::cuda(cudaDeviceSynchronize(), "clipped_sum");
  }

  void check_one(const std::string& title, size_t n, bool accumulate,
                 const std::vector<float>& before) {
    const ClippedSumProblem& p = problems_[n];
    const lab::Exact exact(p.in);
    Buffer<float> old(static_cast<int64_t>(before.size()));
    old.write(before);
    constexpr int kBlocks = 64;
    Buffer<double> worst(kBlocks);
    const double share = lab::accumulation_error(p.in.samples * p.in.positions) +
                         static_cast<double>(p.in.samples + 2) * 0x1p-22;
    sum_check_kernel<<<kBlocks, 256>>>(
        exact.value.get(), exact.magnitude.get(), factors_.get(), p.in.samples, p.in.o, p.in.i,
        accumulate ? old.get() : nullptr, p.out, p.out_row, share, worst.get());
    lab::cuda(cudaDeviceSynchronize(), "check");
    double error = 0;
    for (const double one : worst.read()) error = lab::worse(error, one);
    // What lies between the rows stays as it was.
    const std::vector<float> after = out_[n].read();
    for (int64_t row = 0; row < p.in.o; ++row) {
      for (int64_t column = p.in.i; column < p.out_row; ++column) {
        const size_t at = static_cast<size_t>(row * p.out_row + column);
        if (std::memcmp(&after[at], &before[at], sizeof(float)) != 0) error = INFINITY;
      }
    }
    char what[200];
    std::snprintf(what, sizeof what, "%s %s splits=%d B=%lld T=%lld %lld->%lld", title.c_str(),
                  name_of(schedule_), splits_, static_cast<long long>(p.in.samples),
                  static_cast<long long>(p.in.positions), static_cast<long long>(p.in.i),
                  static_cast<long long>(p.in.o));
    char note[60];
    std::snprintf(note, sizeof note, "(unit: %.1e of the sum without signs)", share);
    report_.line(what, error, 1, note);
  }

  GemmSchedule schedule_;
  int splits_;
  bool outer_ = false;
  lab::Report& report_;
  std::vector<float> values_;
  Buffer<float> factors_;
  uint64_t seeds_ = 0;
  std::vector<std::unique_ptr<lab::Operands>> operands_;
  std::vector<Buffer<float>> out_;
  std::vector<ClippedSumProblem> problems_;
};

void poison_sample(lab::Operands& operands, int64_t sample) {
  for (auto* side : {&operands.a, &operands.g}) {
    std::vector<__nv_bfloat16> values = side->read();
    const int64_t size = side->count() / operands.in.samples;
    std::fill_n(values.begin() + sample * size, size, __float2bfloat16(NAN));
    side->write(values);
  }
}

std::vector<float> plain_factors(int64_t samples, int turn) {
  std::vector<float> factors;
  for (int64_t b = 0; b < samples; ++b)
    factors.push_back((b + turn) % 3 == 0 ? 1.0f : 0.03f * static_cast<float>(b + turn % 7 + 1));
  return factors;
}

void check_all(lab::Report& report) {
  const int64_t lengths[] = {1, 7, 64, 65, 300}, widths[] = {8, 24, 136, 264, 520};
  for (const GemmSchedule schedule : kSchedules) {
    int turn = 0;
    for (const int64_t positions : lengths) {
      for (const int64_t samples : {1, 2, 3, 5}) {
        Trial trial(schedule, turn % 4, plain_factors(samples, turn), report);
        for (int n = 0; n < 3; ++n, ++turn)
          trial.add(positions, widths[turn % 5], widths[(turn * 3 + turn / 5) % 5], Data::Normal,
                    turn % 3 == 0 ? 8 : 0);
        trial.check("list of 3");
      }
    }
    for (const int splits : {1, 3}) {
      const struct {
        const char* name;
        std::vector<float> factors;
      } extremes[] = {
          {"all dropped", {0, 0, 0, 0, 0}},
          {"dropped are not-a-number", {0, 0.5f, 0, 0.25f, 0}},
          {"falling factors", {1, 1e-8f, 1e-15f, 1e-22f, 1e-30f}},
          {"rising factors", {1e-30f, 1e-22f, 1e-15f, 1e-8f, 1}},
          {"jumping factors", {1, 1e-30f, 1, 1e-12f, 0.7f}},
          {"all tiny", {1e-30f, 2e-30f, 1e-30f, 3e-29f, 1e-30f}},
      };
      for (const auto& extreme : extremes) {
        Trial trial(schedule, splits, extreme.factors, report);
        trial.add(130, 136, 264);
        trial.add(200, 520, 136);
        for (size_t b = 0; b < extreme.factors.size(); ++b) {
          for (size_t n = 0; n < 2; ++n)
            if (extreme.factors[b] == 0) poison_sample(trial.operands(n), static_cast<int64_t>(b));
        }
        trial.check(extreme.name);
      }
      Trial many(schedule, splits, plain_factors(2, 1), report);
      for (int n = 0; n < 19; ++n) many.add(40 + 37 * n, widths[n % 5], widths[(n + 2) % 5]);
      many.check("list of 19");
      Trial batch(schedule, splits, plain_factors(300, 2), report);
      batch.add(3, 136, 264);
      batch.check("many samples");
    }
  }
}

void check_one_position(lab::Report& report) {
  for (const int64_t samples : {1, 3, 32, 33, 70}) {
    std::vector<float> factors = plain_factors(samples, 5);
    if (samples > 1) factors[1] = 0;
    if (samples > 3) factors[2] = 1e-30f;
    Trial trial(GemmSchedule::Cooperative, 0, factors, report);
    trial.by_outer_products();
    trial.add(1, 1152, 264);
    trial.add(1, 37, 129);
    trial.add(1, 24, 3, Data::Normal, 8);
    for (int n = 0; n < 17; ++n) trial.add(1, 8 + n, 60 + n);
    for (size_t n = 0; n < 20 && samples > 1; ++n) poison_sample(trial.operands(n), 1);
    trial.check("one position");
  }
}

void check_large(lab::Report& report) {
  for (const GemmSchedule schedule : kSchedules) {
    Trial trial(schedule, 0, {0.3f, 0.9f}, report);
    trial.add(1024, 4096, 4096);
    trial.add(1024, 4096, 1024, Data::Positive);
    trial.add(1000, 1096, 5000);
    trial.check("large");
    Trial deep(schedule, 0, plain_factors(16, 0), report);
    deep.add(1024, 1024, 1024);
    deep.check("deep");
  }
}

void benchmark(const std::string& title, const std::vector<lab::Layer>& layers, int64_t samples,
               int64_t positions, const std::vector<int>& splits) {
  const lab::Block block(layers, samples, positions);
  Buffer<float> out(block.parameters), factors(samples);
  std::vector<float> values;
  for (int64_t b = 0; b < samples; ++b) values.push_back(0.1f + 0.013f * static_cast<float>(b));
  factors.write(values);
  std::vector<ClippedSumProblem> problems;
  int64_t used = 0;
  for (const SampleOperands& in : block.problems) {
    problems.push_back({in, out.get() + used, in.i});
    used += in.o * in.i;
  }
  const int count = static_cast<int>(layers.size());
  std::vector<lab::Contender> contenders;
  std::vector<std::unique_ptr<Buffer<float>>> scratches;
  for (const GemmSchedule schedule : kSchedules) {
    for (const int wish : splits) {
      for (const bool accumulate : {false, true}) {
        if (accumulate && wish != 0) continue;
        const ClippedSumPlan plan = plan_clipped_sum(problems.data(), count, {schedule, wish, 0});
        scratches.push_back(std::make_unique<Buffer<float>>(plan.scratch));
        float* scratch = scratches.back()->get();
        char name[80];
        std::snprintf(name, sizeof name, "%s%s, %d split%s%s", name_of(schedule),
                      accumulate ? ", accumulate" : "", plan.splits, plan.splits > 1 ? "s" : "",
                      wish == 0 ? " (chosen)" : "");
        contenders.push_back({name,
                              [&, plan, scratch, accumulate] {
                                launch_clipped_sum(problems.data(), count, factors.get(),
                                                   accumulate, plan, scratch, nullptr);
                              },
                              block.flops});
      }
    }
  }
  char line[200];
  std::snprintf(line, sizeof line, "%s, B=%lld, T=%lld (peak 989 TFLOP/s: %.3f ms)", title.c_str(),
                static_cast<long long>(samples), static_cast<long long>(positions),
                block.flops / 989e12 * 1e3);
  lab::race(line, contenders, "TFLOP/s");
}

// The modulation of a DiT-XL block: memory-bound by its result.
void benchmark_one_position(int64_t samples) {
  const lab::Block block({{0, 1152, 6912}}, samples, 1);
  Buffer<float> out(block.parameters), factors(samples);
  factors.write(std::vector<float>(static_cast<size_t>(samples), 0.3f));
  const OuterSumProblem problem{block.problems[0], true, out.get(), 1152};
  const double bytes = 4.0 * static_cast<double>(block.parameters);
  std::vector<lab::Contender> contenders;
  contenders.push_back({"outer products",
                        [&] { launch_outer_sum(&problem, 1, factors.get(), false, nullptr); },
                        bytes});
  char line[200];
  std::snprintf(line, sizeof line, "one position, 1152->6912, B=%lld (4.8 TB/s: %.4f ms)",
                static_cast<long long>(samples), bytes / 4.8e12 * 1e3);
  lab::race(line, contenders, "TB/s");
}

}  // namespace
}  // namespace moonshard::kernels

int main(int argc, char** argv) {
  using namespace moonshard::kernels;
  lab::Report report;
  check_all(report);
  check_one_position(report);
  const bool checks_only = argc > 1 && std::strcmp(argv[1], "--check") == 0;
  if (!checks_only) check_large(report);
  if (checks_only || report.failed()) return report.finish();
  for (const int64_t positions : {1024, 2048, 4096})
    benchmark("Llama-8B block", lab::llama_block(), 2, positions, {0});
  benchmark("Llama-8B block", lab::llama_block(), 16, 256, {0});
  const std::vector<lab::Layer> dit_xl = {
      {0, 1152, 3456}, {1, 1152, 1152}, {2, 1152, 4608}, {3, 4608, 1152}};
  for (const int64_t samples : {8, 32}) benchmark("DiT-XL block", dit_xl, samples, 256, {0});
  benchmark("DiT-L block", lab::dit_block(), 16, 1024, {0, 1, 2});
  for (const lab::Layer& layer : lab::dit_block())
    benchmark("one layer of " + std::to_string(layer.i) + "->" + std::to_string(layer.o),
              {{0, layer.i, layer.o}}, 16, 1024, {0, 1, 2, 4});
  for (const int64_t samples : {8, 32, 128}) benchmark_one_position(samples);
  return report.finish();
}
