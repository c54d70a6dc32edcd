// Checks clipped_update against clipped_sum and fused_update one after the other, whose bits it
// must have, over odd row counts, dropped samples and extreme factors; then races the two on blocks
// of Llama-8B. `--check` alone stops after the checks.
#include <cstring>
#include <memory>

#include "kernels/clipped_update/clipped_update_launch.h"
#include "kernels/common/sample_lab.cuh"

namespace moonshard::kernels {
namespace {

using lab::Buffer;

// Of the first positions that a format has: finite numbers of any sign.
__global__ void fill_words_kernel(uint16_t* to, int64_t count, uint64_t seed, bool bfloat16) {
  for (int64_t at = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; at < count;
       at += int64_t{gridDim.x} * blockDim.x) {
    const float value = lab::hashed_normal(seed, static_cast<uint64_t>(at));
    const __nv_bfloat16 narrow = __float2bfloat16(0.1f * value);
    uint16_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    to[at] = bfloat16 ? bits : static_cast<uint16_t>(static_cast<int>(value * 9000.0f));
  }
}

__global__ void fill_floats_kernel(float* to, int64_t count, uint64_t seed, float size,
                                   bool positive) {
  for (int64_t at = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; at < count;
       at += int64_t{gridDim.x} * blockDim.x) {
    const float value = size * lab::hashed_normal(seed, static_cast<uint64_t>(at));
    to[at] = positive ? fabsf(value) : value;
  }
}

// What one update changes, for one layer.
struct Weights {
  explicit Weights(const SampleOperands& in, uint64_t seed, bool adds)
      : count(in.o * in.i),
        high(count),
        low(count),
        first(count),
        second(count),
        grad(adds ? count : 0) {
    fill_words_kernel<<<1024, 256>>>(high.get(), count, seed, true);
    fill_words_kernel<<<1024, 256>>>(low.get(), count, seed + 1, false);
    fill_floats_kernel<<<1024, 256>>>(first.get(), count, seed + 2, 0.01f, false);
    fill_floats_kernel<<<1024, 256>>>(second.get(), count, seed + 3, 0.01f, true);
    if (adds) fill_floats_kernel<<<1024, 256>>>(grad.get(), count, seed + 4, 0.3f, false);
    lab::cuda(cudaGetLastError(), "fill");
  }
  RawUpdatePart part(uint32_t parameter, const RawUpdateRule& rule, bool adds) const {
    RawUpdatePart part;
    part.value = high.get();
    if (rule.value_format == UpdateFormat::Split) part.low = low.get();
    if (rule.kind != UpdateKind::Sgd) {
      part.first_moment = first.get();
      part.second_moment = second.get();
    }
    part.count = count;
    part.parameter = parameter;
    part.correction1 = 0.1, part.correction2 = 0.05;
    if (adds) part.grad = grad.get(), part.grad_format = UpdateFormat::Float;
    return part;
  }

  int64_t count;
  Buffer<uint16_t> high, low;
  Buffer<float> first, second, grad;
};

RawUpdateRule rule_of(UpdateKind kind, UpdateFormat format) {
  RawUpdateRule rule;
  rule.kind = kind;
  rule.value_format = format;
  rule.lr = 0.01, rule.beta1 = 0.9, rule.beta2 = 0.95, rule.eps = 1e-8, rule.decay = 0.1;
  rule.noise_std = 0.7, rule.denominator = 16;
  rule.noise_step = 11;
  rule.is_secret = true;
  for (uint32_t i = 0; i < 8; ++i) rule.secret_key.word[i] = 0x9e3779b9u * (i + 1);
  return rule;
}

template <class T>
int64_t differing(const Buffer<T>& one, const Buffer<T>& other) {
  const std::vector<T> x = one.read(), y = other.read();
  int64_t count = 0;
  for (size_t i = 0; i < x.size(); ++i) count += std::memcmp(&x[i], &y[i], sizeof(T)) != 0;
  return count;
}

class Trial {
 public:
  Trial(std::vector<float> factors, lab::Report& report)
      : report_(report),
        values_(std::move(factors)),
        factors_(static_cast<int64_t>(values_.size())) {
    factors_.write(values_);
  }
  void add(int64_t positions, int64_t i, int64_t o) {
    operands_.push_back(std::make_unique<lab::Operands>(static_cast<int64_t>(values_.size()),
                                                        positions, i, o, 31 * ++seeds_,
                                                        lab::Data::Normal, 8));
  }
  // Of sums that begin anew for other factors the last bits may differ.
  void check(const std::string& title, bool adds, double share = 0) {
    for (const UpdateFormat format : {UpdateFormat::Split, UpdateFormat::Bfloat16}) {
      for (const UpdateKind kind : {UpdateKind::Sgd, UpdateKind::Adam, UpdateKind::AdamW}) {
        for (const GemmSchedule schedule : {GemmSchedule::Cooperative, GemmSchedule::PingPong})
          check_one(title, rule_of(kind, format), schedule, adds, share);
      }
    }
  }

 private:
  void check_one(const std::string& title, const RawUpdateRule& rule, GemmSchedule schedule,
                 bool adds, double share) {
    std::vector<std::unique_ptr<Weights>> want, got;
    std::vector<ClippedSumProblem> sums;
    std::vector<ClippedUpdateProblem> problems;
    std::vector<RawUpdatePart> parts;
    std::vector<std::unique_ptr<Buffer<float>>> gradients;
    int64_t all = 0;
    for (size_t n = 0; n < operands_.size(); ++n) {
      const SampleOperands& in = operands_[n]->in;
      want.push_back(std::make_unique<Weights>(in, 100 * n, adds));
      got.push_back(std::make_unique<Weights>(in, 100 * n, adds));
      gradients.push_back(std::make_unique<Buffer<float>>(in.o * in.i));
      if (adds) gradients.back()->write(want.back()->grad.read());
      sums.push_back({in, gradients.back()->get(), in.i});
      const auto parameter = static_cast<uint32_t>(n + 5);
      problems.push_back({in, got.back()->part(parameter, rule, adds)});
      parts.push_back(want.back()->part(parameter, rule, false));
      parts.back().grad = gradients.back()->get();
      parts.back().grad_format = UpdateFormat::Float;
      all += in.o * in.i;
    }
    const int count = static_cast<int>(sums.size());
    const ClippedSumPlan plan = plan_clipped_sum(sums.data(), count, {schedule, 1, 0});
    launch_clipped_sum(sums.data(), count, factors_.get(), adds, plan, nullptr, nullptr);
    launch_fused_update_secret(parts.data(), count, rule, nullptr);
    Buffer<float> scratch(clipped_update_scratch());
    launch_clipped_update(problems.data(), count, factors_.get(), rule, schedule, scratch.get(),
                          nullptr);
    lab::cuda(cudaDeviceSynchronize(), "clipped_update");
    int64_t different = 0;
    for (size_t n = 0; n < want.size(); ++n) {
      const bool split = rule.value_format == UpdateFormat::Split;
      different += differing(want[n]->high, got[n]->high);
      different += differing(want[n]->low, got[n]->low) * (split ? 1 : 0);
      different += differing(want[n]->first, got[n]->first);
      different += differing(want[n]->second, got[n]->second);
    }
    char what[200];
    std::snprintf(what, sizeof what, "%s%s, %s, %s, %s", title.c_str(), adds ? " +" : "",
                  schedule == GemmSchedule::PingPong ? "ping-pong" : "cooperative",
                  rule.value_format == UpdateFormat::Split ? "halves" : "bfloat16",
                  rule.kind == UpdateKind::Sgd    ? "sgd"
                  : rule.kind == UpdateKind::Adam ? "adam"
                                                  : "adamw");
    report_.line(what, static_cast<double>(different) / static_cast<double>(all), share,
                 "share of numbers that differ");
  }

  lab::Report& report_;
  std::vector<float> values_;
  Buffer<float> factors_;
  std::vector<std::unique_ptr<lab::Operands>> operands_;
  uint64_t seeds_ = 0;
};

void check_all(lab::Report& report) {
  const struct {
    const char* name;
    std::vector<float> factors;
    double share;
  } cases[] = {{"plain", {0.3f, 0.9f, 1.0f}, 0},
               {"dropped", {0.0f, 0.5f, 0.0f}, 0},
               {"all dropped", {0.0f, 0.0f}, 0},
               // A grid point farther, where the last bit of a sum decides.
               {"jumping factors", {1, 1e-30f, 1, 1e-12f, 0.7f}, 1e-3}};
  for (const auto& one : cases) {
    for (const bool adds : {false, true}) {
      Trial trial(one.factors, report);
      trial.add(130, 256, 264);
      trial.add(200, 512, 72);
      trial.add(64, 1024, 8);
      trial.check(one.name, adds, adds ? std::max(one.share, 1e-3) : one.share);
    }
  }
  Trial many({0.4f, 0.7f}, report);
  for (int n = 0; n < 19; ++n) many.add(40 + 37 * n, 256 * (1 + n % 3), 64 + 24 * (n % 5));
  many.check("list of 19", false);
  Trial large({0.3f, 0.9f}, report);
  large.add(1024, 4096, 4096);
  large.check("large", false);
}

void benchmark(int64_t samples, int64_t positions, UpdateKind kind) {
  const lab::Block block(lab::llama_block(), samples, positions);
  Buffer<float> gradients(block.parameters), factors(samples);
  factors.write(std::vector<float>(static_cast<size_t>(samples), 0.3f));
  const RawUpdateRule rule = rule_of(kind, UpdateFormat::Split);
  std::vector<std::unique_ptr<Weights>> weights;
  std::vector<ClippedSumProblem> sums;
  std::vector<ClippedUpdateProblem> problems;
  std::vector<RawUpdatePart> parts;
  int64_t used = 0;
  for (const SampleOperands& in : block.problems) {
    weights.push_back(std::make_unique<Weights>(in, 7, false));
    sums.push_back({in, gradients.get() + used, in.i});
    const auto parameter = static_cast<uint32_t>(parts.size());
    problems.push_back({in, weights.back()->part(parameter, rule, false)});
    parts.push_back(problems.back().part);
    parts.back().grad = gradients.get() + used;
    parts.back().grad_format = UpdateFormat::Float;
    used += in.o * in.i;
  }
  const int count = static_cast<int>(sums.size());
  const ClippedSumPlan plan = plan_clipped_sum(sums.data(), count, {});
  Buffer<float> splits(plan.scratch), scratch(clipped_update_scratch());
  const auto sum = [&] {
    launch_clipped_sum(sums.data(), count, factors.get(), false, plan, splits.get(), nullptr);
  };
  const auto update = [&] { launch_fused_update_secret(parts.data(), count, rule, nullptr); };
  std::vector<lab::Contender> contenders;
  contenders.push_back({"clipped_sum", sum, block.flops});
  contenders.push_back({"fused_update", update, block.flops});
  contenders.push_back({"both", [&] { sum(), update(); }, block.flops});
  for (const GemmSchedule schedule : {GemmSchedule::Cooperative, GemmSchedule::PingPong}) {
    contenders.push_back({schedule == GemmSchedule::PingPong ? "clipped_update, ping-pong"
                                                             : "clipped_update, cooperative",
                          [&, schedule] {
                            launch_clipped_update(problems.data(), count, factors.get(), rule,
                                                  schedule, scratch.get(), nullptr);
                          },
                          block.flops});
  }
  char line[200];
  std::snprintf(line, sizeof line, "Llama-8B block, B=%lld, T=%lld, %s",
                static_cast<long long>(samples), static_cast<long long>(positions),
                kind == UpdateKind::Sgd ? "sgd" : "adam");
  lab::race(line, contenders, "TFLOP/s");
}

}  // namespace
}  // namespace moonshard::kernels

int main(int argc, char** argv) {
  using namespace moonshard::kernels;
  lab::Report report;
  check_all(report);
  const bool checks_only = argc > 1 && std::strcmp(argv[1], "--check") == 0;
  if (checks_only || report.failed()) return report.finish();
  for (const int64_t positions : {256, 512, 1024, 2048, 4096})
    benchmark(2, positions, UpdateKind::Sgd);
  benchmark(16, 256, UpdateKind::Sgd);
  for (const int64_t positions : {1024, 4096}) benchmark(2, positions, UpdateKind::Adam);
  return report.finish();
}
