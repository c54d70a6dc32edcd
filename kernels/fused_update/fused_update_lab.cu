// Lab of fused_update: every dtype, rule and kind of gradient at odd sizes and places against the
// same in double precision on the host, then the speed beside that of a plain copy.
//   build/bin/fused_update_lab [--check]
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/counter_noise/counter_noise_math.h"
#include "kernels/fused_update/fused_update_launch.h"

namespace {

using namespace moonshard::kernels;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "fused_update_lab: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

int64_t size_of(UpdateFormat format) {
  return format == UpdateFormat::Double ? 8 : format == UpdateFormat::Float ? 4 : 2;
}

const char* name_of(UpdateFormat format) {
  constexpr const char* kNames[] = {"none", "f32", "f64", "bf16", "f16", "split"};
  return kNames[static_cast<int>(format) + 1];
}

const char* name_of(UpdateKind kind) {
  constexpr const char* kNames[] = {"replace", "sgd", "momentum", "adam", "adamw"};
  return kNames[static_cast<int>(kind)];
}

// Half of the last bit, relative.
double rounding_of(UpdateFormat format) {
  constexpr double kHalfBits[] = {6e-8, 1.2e-16, 4e-3, 5e-4};
  return kHalfBits[static_cast<int>(format)];
}

// Numbers on the host as doubles and on the device in their dtype, between guards that must stay.
class Buffer {
 public:
  static constexpr int64_t kGuard = 64;  // elements
  std::vector<double> host;

  Buffer(UpdateFormat format, int64_t count, int64_t shift) : format_(format), shift_(shift) {
    host.resize(static_cast<size_t>(count));
    const size_t bytes = static_cast<size_t>((count + 2 * kGuard + shift) * size_of(format));
    raw_.assign(bytes, 0xAB);
    check(cudaMalloc(&device_, bytes), "cudaMalloc");
  }
  ~Buffer() { cudaFree(device_); }
  Buffer(const Buffer&) = delete;

  // Rounds the host's numbers to the dtype and sends them.
  void send() {
    for (size_t i = 0; i < host.size(); ++i) host[i] = put(i, host[i]);
    check(cudaMemcpy(device_, raw_.data(), raw_.size(), cudaMemcpyHostToDevice), "send");
  }
  // What the device has now; false when a guard was written to.
  bool fetch(std::vector<double>& to) {
    std::vector<unsigned char> got(raw_.size());
    check(cudaMemcpy(got.data(), device_, got.size(), cudaMemcpyDeviceToHost), "fetch");
    const size_t first = static_cast<size_t>((kGuard + shift_) * size_of(format_));
    const size_t end = first + host.size() * static_cast<size_t>(size_of(format_));
    for (size_t i = 0; i < got.size(); ++i)
      if ((i < first || i >= end) && got[i] != 0xAB) return false;
    raw_ = std::move(got);
    to.resize(host.size());
    for (size_t i = 0; i < to.size(); ++i) to[i] = get(i);
    return true;
  }
  void* address() const {
    return static_cast<char*>(device_) + (kGuard + shift_) * size_of(format_);
  }

 private:
  unsigned char* place(size_t i) {
    return raw_.data() + (kGuard + shift_ + static_cast<int64_t>(i)) * size_of(format_);
  }
  double put(size_t i, double x) {
    const auto store = [&](auto number) { std::memcpy(place(i), &number, sizeof number); };
    switch (format_) {
      case UpdateFormat::Double:
        store(x);
        break;
      case UpdateFormat::Float:
        store(static_cast<float>(x));
        break;
      case UpdateFormat::Bfloat16:
        store(__float2bfloat16(static_cast<float>(x)));
        break;
      default:
        store(__float2half(static_cast<float>(x)));
        break;
    }
    return get(i);
  }
  double get(size_t i) {
    const auto loaded = [&](auto number) {
      std::memcpy(&number, place(i), sizeof number);
      return number;
    };
    switch (format_) {
      case UpdateFormat::Double:
        return loaded(0.0);
      case UpdateFormat::Float:
        return loaded(0.0f);
      case UpdateFormat::Bfloat16:
        return __bfloat162float(loaded(__nv_bfloat16()));
      default:
        return __half2float(loaded(__half()));
    }
  }

  UpdateFormat format_;
  int64_t shift_;
  void* device_ = nullptr;
  std::vector<unsigned char> raw_;
};

struct Case {
  UpdateFormat value = UpdateFormat::Float, grad = UpdateFormat::Float, rows = UpdateFormat::None;
  UpdateKind kind = UpdateKind::Sgd;
  double std = 0.7;
  int num_rows = 0, num_parts = 3;
  bool odd_places = false;  // first elements and addresses that allow no vectors
  bool units = false;       // rows have several factors
};

struct LabPart {
  std::unique_ptr<Buffer> value, grad, rows, factors, first, second;
  RawUpdatePart raw;
  int64_t steps = 1;
};

std::mt19937_64 generator(20240607);

double uniform(double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(generator);
}

double normal() {
  return std::normal_distribution<double>()(generator);
}

LabPart make_part(const Case& c, const RawUpdateRule& rule, int which) {
  // The first few are larger than a block's share, or just not.
  constexpr int64_t kCounts[] = {8192, 8191, 24577, 8193, 16384, 1, 3, 4, 5, 63};
  LabPart part;
  const int64_t count = kCounts[which < 3 ? static_cast<int>(uniform(0, 4.999))
                                          : 5 + static_cast<int>(uniform(0, 4.999))];
  const auto shift = [&] { return c.odd_places ? static_cast<int64_t>(uniform(0, 7.99)) : 0; };
  const auto fill = [&](UpdateFormat format, int64_t n, const std::function<double()>& draw) {
    auto buffer = std::make_unique<Buffer>(format, n, shift());
    for (double& x : buffer->host) x = draw();
    buffer->send();
    return buffer;
  };
  part.raw.count = count;
  part.raw.parameter = static_cast<uint32_t>(which * 7 + 1);
  // Far out, too: counters beyond 32 bits.
  part.raw.first_element = c.odd_places                 ? static_cast<int64_t>(uniform(0, 1000))
                           : which % 3 == 1 && !c.units ? (int64_t{1} << 35) + 64
                                                        : 64 * which;
  part.steps = 1 + which % 4;
  part.raw.correction1 = 1 - std::pow(rule.beta1, static_cast<double>(part.steps));
  part.raw.correction2 = 1 - std::pow(rule.beta2, static_cast<double>(part.steps));
  part.value = fill(c.value, count, normal);
  part.raw.value = part.value->address();
  if (c.grad != UpdateFormat::None) {
    part.grad = fill(c.grad, count, normal);
    part.raw.grad = part.grad->address();
    part.raw.grad_format = c.grad;
  }
  if (c.rows != UpdateFormat::None) {
    part.raw.num_rows = c.num_rows;
    part.raw.row_stride = c.odd_places ? count + which % 5 : (count + 15) / 4 * 4;
    part.raw.row_format = c.rows;
    if (c.units)
      part.raw.units_per_row = static_cast<uint32_t>(
          (part.raw.first_element + count + kUnitElements - 1) / kUnitElements);
    const int64_t per_row = part.raw.units_per_row + (c.units ? 3 * (which % 3) : 0);
    part.raw.factor_stride = static_cast<uint32_t>(per_row);
    part.factors = fill(UpdateFormat::Float, c.num_rows * per_row, [&] { return uniform(0.1, 1); });
    part.rows = fill(c.rows, part.raw.row_stride * c.num_rows, normal);
    if (c.num_rows > 1) {  // one sample is dropped: nothing of it may be seen
      const int dropped = static_cast<int>(uniform(0, c.num_rows - 0.01));
      for (int64_t u = 0; u < per_row; ++u)
        part.factors->host[static_cast<size_t>(dropped * per_row + u)] = 0;
      part.factors->send();
      for (int64_t i = 0; i < count; ++i) {
        part.rows->host[static_cast<size_t>(part.raw.row_stride * dropped + i)] =
            i % 2 == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
      }
      part.rows->send();
    }
    part.raw.rows = part.rows->address();
    part.raw.row_factors = static_cast<const float*>(part.factors->address());
  }
  if (c.kind == UpdateKind::Momentum) {
    const bool wide = c.value == UpdateFormat::Double;
    part.first = fill(wide ? UpdateFormat::Double : UpdateFormat::Float, count, normal);
  } else if (c.kind == UpdateKind::Adam || c.kind == UpdateKind::AdamW) {
    part.first = fill(c.value, count, [] { return 0.3 * normal(); });
    part.second = fill(c.value, count, [] { return uniform(0.05, 1); });
  }
  if (part.first != nullptr) part.raw.first_moment = part.first->address();
  if (part.second != nullptr) part.raw.second_moment = part.second->address();
  return part;
}

// The worst error as a multiple of what is allowed; negative when a guard was written to.
double worst_error(LabPart& part, const Case& c, const RawUpdateRule& rule) {
  std::vector<double> value, first, second;
  if (!part.value->fetch(value)) return -1;
  if (part.first != nullptr && !part.first->fetch(first)) return -1;
  if (part.second != nullptr && !part.second->fetch(second)) return -1;
  const bool wide = c.value == UpdateFormat::Double;
  const double format = rounding_of(c.value);
  const double sum_format = wide ? format : 6e-8;
  double worst = 0;
  const auto compare = [&](double got, double want, double allowed) {
    const double error = std::fabs(got - want) / allowed;
    worst = error <= worst ? worst : std::isnan(error) ? 1e30 : error;
  };
  for (int64_t j = 0; j < part.raw.count; ++j) {
    const auto i = static_cast<size_t>(j);
    double g = 0, size = 0;
    if (part.grad != nullptr) g = part.grad->host[i], size = std::fabs(g);
    for (int b = 0; b < part.raw.num_rows; ++b) {
      const int64_t unit = c.units ? (part.raw.first_element + j) / kUnitElements : 0;
      const int64_t at = b * int64_t{part.raw.factor_stride} + unit;
      const double factor = part.factors->host[static_cast<size_t>(at)];
      if (factor == 0) continue;
      const double term =
          factor * part.rows->host[static_cast<size_t>(part.raw.row_stride * b + j)];
      g += term, size += std::fabs(term);
    }
    // Normals are float32 everywhere: also with double values they agree to 1e-6 only.
    double g_error = sum_format * 4 * size;
    if (rule.noise_std != 0) {
      const auto element = static_cast<uint64_t>(part.raw.first_element + j);
      const double z = static_cast<double>(
          four_normals(element / 4, rule.noise_step, part.raw.parameter, rule.noise_key)
              .value[element % 4]);
      g += rule.noise_std * z;
      g_error += rule.noise_std * 1e-6 * (1 + std::fabs(z));
    }
    g /= rule.denominator;
    g_error = g_error / rule.denominator + 2 * sum_format * std::fabs(g);
    const double before = part.value->host[i];
    double after = before, after_error = 0;
    if (c.kind == UpdateKind::Replace) {
      after = g, after_error = g_error;
    } else if (c.kind == UpdateKind::Sgd) {
      after -= rule.lr * g, after_error = rule.lr * g_error;
    } else if (c.kind == UpdateKind::Momentum) {
      const double sum = rule.momentum * part.first->host[i] + g;
      const double sum_error = g_error + 2 * sum_format * (std::fabs(sum) + std::fabs(g));
      compare(first[i], sum, sum_error + 1e-30);
      after -= rule.lr * sum, after_error = rule.lr * sum_error;
    } else {
      if (c.kind == UpdateKind::AdamW) after -= rule.lr * rule.decay * after;
      if (c.kind == UpdateKind::Adam) g += rule.decay * before;
      const double mean = rule.beta1 * part.first->host[i] + (1 - rule.beta1) * g;
      const double square = rule.beta2 * part.second->host[i] + (1 - rule.beta2) * g * g;
      const double few = 4 * sum_format;
      const double mean_error = g_error + few * (std::fabs(part.first->host[i]) + std::fabs(g));
      const double square_error = 2 * std::fabs(g) * g_error + few * square;
      compare(first[i], mean, mean_error + format * std::fabs(mean) + 1e-30);
      compare(second[i], square, square_error + format * square + 1e-30);
      const double spread = std::sqrt(square / part.raw.correction2) + rule.eps;
      const double moved = rule.lr / part.raw.correction1 * mean / spread;
      after -= moved;
      after_error = rule.lr / part.raw.correction1 * mean_error / spread +
                    std::fabs(moved) * (square_error / square + 8 * sum_format);
    }
    compare(
        value[i], after,
        after_error + (format + 2 * sum_format) * (std::fabs(before) + std::fabs(after)) + 1e-30);
  }
  return worst;
}

bool run_case(const Case& c, const std::string& label) {
  RawUpdateRule rule;
  rule.kind = c.kind;
  rule.value_format = c.value;
  rule.lr = 0.03, rule.momentum = 0.9, rule.beta1 = 0.9, rule.beta2 = 0.95, rule.eps = 1e-8;
  rule.decay = c.kind == UpdateKind::Adam || c.kind == UpdateKind::AdamW ? 0.1 : 0;
  rule.noise_std = c.std, rule.denominator = 3;
  rule.noise_key = 0x123456789abcdef0u, rule.noise_step = 77;
  std::vector<LabPart> parts;
  std::vector<RawUpdatePart> raw;
  for (int i = 0; i < c.num_parts; ++i) parts.push_back(make_part(c, rule, i));
  for (const LabPart& part : parts) raw.push_back(part.raw);
  launch_fused_update(raw.data(), c.num_parts, rule, nullptr);
  check(cudaDeviceSynchronize(), label.c_str());
  double worst = 0;
  bool guards = true;
  for (LabPart& part : parts) {
    const double error = worst_error(part, c, rule);
    guards = guards && error >= 0;
    worst = std::max(worst, error);
  }
  const bool ok = guards && worst <= 1;
  std::printf("%-58s worst error %.3f of what is allowed%s: %s\n", label.c_str(), worst,
              guards ? "" : ", WROTE OUTSIDE", ok ? "PASS" : "FAIL");
  return ok;
}

bool run_all_cases() {
  bool ok = true;
  using enum UpdateFormat;
  struct Sources {
    UpdateFormat grad, rows;
    int num_rows;
  };
  const Sources sources[] = {{Float, None, 0}, {None, Half, 1},     {None, Half, 2},
                             {None, Half, 7},  {None, Bfloat16, 2}, {None, Float, 3},
                             {Float, Half, 3}, {Bfloat16, None, 0}, {Double, Bfloat16, 2},
                             {None, None, 0},  {Half, Double, 2}};
  for (const UpdateFormat value : {Float, Bfloat16, Double}) {
    for (const UpdateKind kind : {UpdateKind::Replace, UpdateKind::Sgd, UpdateKind::Momentum,
                                  UpdateKind::Adam, UpdateKind::AdamW}) {
      for (const Sources& from : sources) {
        for (const bool odd : {false, true}) {
          Case c{value, from.grad, from.rows, kind, 0.7, from.num_rows, odd ? 5 : 37, odd};
          const std::string label = std::string(name_of(value)) + " " + name_of(kind) + " grad " +
                                    name_of(from.grad) + " rows " + std::to_string(from.num_rows) +
                                    " x " + name_of(from.rows) + (odd ? " odd places" : "");
          ok = run_case(c, label) && ok;
          if (from.rows == Half) {
            c.units = true;
            ok = run_case(c, label + " units") && ok;
            c.units = false;
          }
          c.std = 0;
          c.num_parts = 2;
          ok = run_case(c, label + " no noise") && ok;
        }
      }
    }
  }
  return ok;
}

// The numbers of the noise themselves, by replacing nothing with them.
bool check_normals() {
  constexpr int64_t kCount = 4'000'003;
  Buffer target(UpdateFormat::Float, kCount, 0), added(UpdateFormat::Float, kCount, 0);
  target.send();
  added.send();
  RawUpdatePart part;
  part.value = target.address();
  part.count = kCount;
  part.first_element = 8;
  part.parameter = 5;
  RawUpdateRule rule;
  rule.kind = UpdateKind::Replace;
  rule.noise_std = 1, rule.noise_key = 42, rule.noise_step = 9;
  launch_fused_update(&part, 1, rule, nullptr);
  launch_counter_noise(added.address(), 0, kCount, 1.0, {42, 9, 5}, 8, nullptr);
  check(cudaDeviceSynchronize(), "normals");
  std::vector<double> got, other;
  if (!target.fetch(got) || !added.fetch(other)) return false;
  double to_host = 0, to_kernel = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const auto element = static_cast<uint64_t>(8 + i);
    const double want = four_normals(element / 4, 9, 5, 42).value[element % 4];
    to_host = std::fmax(to_host, std::fabs(want - got[static_cast<size_t>(i)]));
    to_kernel = std::fmax(to_kernel,
                          std::fabs(other[static_cast<size_t>(i)] - got[static_cast<size_t>(i)]));
  }
  const bool ok = to_host <= 2e-6 && to_kernel == 0;
  std::printf(
      "normals: largest difference to the host's %.3g, to counter_noise's kernel %.3g: %s\n",
      to_host, to_kernel, ok ? "PASS" : "FAIL");
  return ok;
}

// ---- speed
// ---------------------------------------------------------------------------------------

double median_ms(const std::function<void()>& run) {
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  std::vector<float> times;
  for (int repeat = 0; repeat < 13; ++repeat) {
    check(cudaEventRecord(start), "record");
    run();
    check(cudaEventRecord(stop), "record");
    check(cudaEventSynchronize(stop), "synchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "elapsed");
    if (repeat >= 3) times.push_back(ms);
  }
  check(cudaEventDestroy(start), "event");
  check(cudaEventDestroy(stop), "event");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void* allocate(int64_t bytes) {
  void* address = nullptr;
  check(cudaMalloc(&address, static_cast<size_t>(bytes)), "cudaMalloc");
  check(cudaMemset(address, 0, static_cast<size_t>(bytes)), "cudaMemset");
  return address;
}

void benchmark() {
  constexpr int64_t kElements = int64_t{1} << 29;  // 2 GiB of float32: far beyond the L2 cache
  char* memory[4];
  for (char*& one : memory) one = static_cast<char*>(allocate(kElements * 4));
  auto* factors = static_cast<float*>(allocate(64));
  const float one[] = {0.5f, 0.25f, 0.125f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f};
  check(cudaMemcpy(factors, one, sizeof one, cudaMemcpyHostToDevice), "factors");

  const double copy_ms = median_ms([&] {
    check(cudaMemcpyAsync(memory[0], memory[1], kElements * 4, cudaMemcpyDeviceToDevice), "copy");
  });
  const double copy_speed = 8e-9 * kElements / copy_ms;
  std::printf("plain copy: %.3f ms, %.2f TB/s\n", copy_ms, copy_speed);

  const auto time = [&](const char* label, UpdateFormat value, UpdateKind kind, UpdateFormat grad,
                        UpdateFormat rows, int num_rows, double std, int num_parts) {
    RawUpdateRule rule;
    rule.kind = kind;
    rule.value_format = value;
    rule.lr = 1e-3, rule.beta1 = 0.9, rule.beta2 = 0.95, rule.eps = 1e-8, rule.decay = 0.1;
    rule.momentum = 0.9, rule.noise_std = std, rule.denominator = 2;
    rule.noise_key = 1, rule.noise_step = 1;
    rule.is_secret = std::strstr(label, "secret") != nullptr;
    for (uint32_t i = 0; i < 8; ++i) rule.secret_key.word[i] = 0x9e3779b9u * (i + 1);
    // Rows of B samples take the place of one gradient: as many elements as fit there.
    const int64_t elements = num_rows > 2 ? kElements * 2 / num_rows / 4096 * 4096 : kElements;
    const int64_t count = elements / num_parts;
    std::vector<RawUpdatePart> parts(static_cast<size_t>(num_parts));
    for (int i = 0; i < num_parts; ++i) {
      RawUpdatePart& part = parts[static_cast<size_t>(i)];
      const int64_t at = i * count;
      part.value = memory[0] + at * size_of(value);
      if (value == UpdateFormat::Split) part.low = memory[0] + (kElements + at) * 2;
      if (grad != UpdateFormat::None) part.grad = memory[1] + at * size_of(grad);
      part.grad_format = grad;
      if (num_rows > 0) {
        part.rows = memory[1] + at * size_of(rows);
        part.row_format = rows;
        part.row_stride = elements;
        part.num_rows = num_rows;
        part.row_factors = factors;
      }
      const bool wide = kind == UpdateKind::Momentum || value == UpdateFormat::Split;
      const int64_t moment = wide ? 4 : size_of(value);
      part.first_moment = memory[2] + at * moment;
      part.second_moment = memory[3] + at * moment;
      part.count = count;
      part.parameter = static_cast<uint32_t>(i);
      part.correction1 = 0.1, part.correction2 = 0.05;
    }
    const bool adam = kind == UpdateKind::Adam || kind == UpdateKind::AdamW;
    const int64_t whole = value == UpdateFormat::Split ? 4 : size_of(value);
    const int64_t bytes = 2 * whole + (grad == UpdateFormat::None ? 0 : size_of(grad)) +
                          (num_rows > 0 ? num_rows * size_of(rows) : 0) +
                          (adam                           ? 4 * whole
                           : kind == UpdateKind::Momentum ? 8
                                                          : 0);
    const double ms =
        median_ms([&] { launch_fused_update(parts.data(), num_parts, rule, nullptr); });
    const double speed = 1e-9 * static_cast<double>(bytes * elements) / ms;
    std::printf(
        "%-44s %2lld bytes: %7.3f ms, %.2f TB/s, %.2f of a copy's; 7.5e9 parameters %.1f ms\n",
        label, static_cast<long long>(bytes), ms, speed, speed / copy_speed,
        ms * 7.5e9 / static_cast<double>(elements));
  };
  using enum UpdateFormat;
  using enum UpdateKind;
  time("f32 sgd, f32 grad, noise", Float, Sgd, Float, None, 0, 1, 1);
  time("f32 sgd, f32 grad, no noise", Float, Sgd, Float, None, 0, 0, 1);
  time("f32 sgd, 2 f16 rows, noise", Float, Sgd, None, Half, 2, 1, 1);
  time("f32 sgd, 2 f16 rows, no noise", Float, Sgd, None, Half, 2, 0, 1);
  time("f32 sgd, 2 bf16 rows, noise", Float, Sgd, None, Bfloat16, 2, 1, 1);
  time("f32 sgd, 4 f16 rows, noise", Float, Sgd, None, Half, 4, 1, 1);
  time("f32 sgd, 8 f16 rows, noise", Float, Sgd, None, Half, 8, 1, 1);
  time("f32 sgd, 2 f16 rows, noise, 512 parts", Float, Sgd, None, Half, 2, 1, 512);
  time("f32 sgd, f32 grad, noise, 4096 parts", Float, Sgd, Float, None, 0, 1, 4096);
  time("f32 sgd, nothing but noise", Float, Sgd, None, None, 0, 1, 1);
  time("f32 momentum, f32 grad, noise", Float, Momentum, Float, None, 0, 1, 1);
  time("f32 adamw, f32 grad, noise", Float, AdamW, Float, None, 0, 1, 1);
  time("f32 adamw, 2 f16 rows, noise", Float, AdamW, None, Half, 2, 1, 1);
  time("bf16 sgd, f32 grad, noise", Bfloat16, Sgd, Float, None, 0, 1, 1);
  time("bf16 adamw, f32 grad, noise", Bfloat16, AdamW, Float, None, 0, 1, 1);
  time("f32 sgd, f32 grad, secret noise", Float, Sgd, Float, None, 0, 1, 1);
  time("f32 sgd, 2 f16 rows, secret noise", Float, Sgd, None, Half, 2, 1, 1);
  time("f32 sgd, 4 f16 rows, secret noise", Float, Sgd, None, Half, 4, 1, 1);
  time("f32 sgd, 8 f16 rows, secret noise", Float, Sgd, None, Half, 8, 1, 1);
  time("f32 adamw, f32 grad, secret noise", Float, AdamW, Float, None, 0, 1, 1);
  time("f32 adamw, 2 f16 rows, secret noise", Float, AdamW, None, Half, 2, 1, 1);
  time("bf16 sgd, f32 grad, secret noise", Bfloat16, Sgd, Float, None, 0, 1, 1);
  time("split sgd, f32 grad, no noise", Split, Sgd, Float, None, 0, 0, 1);
  time("split sgd, f32 grad, secret noise", Split, Sgd, Float, None, 0, 1, 1);
  time("split sgd, 2 f16 rows, secret noise", Split, Sgd, None, Half, 2, 1, 1);
  time("split sgd, 4 f16 rows, secret noise", Split, Sgd, None, Half, 4, 1, 1);
  time("split adamw, 2 f16 rows, secret noise", Split, AdamW, None, Half, 2, 1, 1);
  time("split adamw, 8 f16 rows, secret noise", Split, AdamW, None, Half, 8, 1, 1);
  time("split adamw, f32 grad, secret noise", Split, AdamW, Float, None, 0, 1, 1);
  time("f32 replace, 2 f16 rows, no noise", Float, Replace, None, Half, 2, 0, 1);
  const double noise_ms = median_ms([&] {
    launch_counter_noise(memory[0], 0, kElements, 1.0, {1, 2, 3}, 0, nullptr);
  });
  std::printf("counter_noise alone: %.3f ms, %.2f TB/s\n", noise_ms, 8e-9 * kElements / noise_ms);
}

}  // namespace

int main(int argc, char** argv) {
  bool ok = check_normals();
  ok = run_all_cases() && ok;
  std::printf("%s\n", ok ? "all cases PASS" : "some cases FAIL");
  if (!ok) return 1;
  if (argc > 1 && std::strcmp(argv[1], "--check") == 0) return 0;
  benchmark();
  return 0;
}
