// Lab of ghost_norm: compares the kernel with double-precision sums on the host over odd shapes,
// and at large widths with sums in double on the GPU, then times transformer blocks. Run on a GPU:
// build/bin/ghost_norm_lab [--check] [--portable]
// --check: the small shapes alone; --portable: the kernel for any GPU, not Hopper's
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/ghost_norm/ghost_norm_launch.h"

namespace {

using namespace moonshard::kernels;
using Number = __nv_bfloat16;

int failures = 0;
bool portable = false;

int64_t workspace_bytes(const std::vector<GhostGroupView>& groups, int64_t samples) {
  return portable ? ghost_norm_mma_workspace_bytes(groups, samples)
                  : ghost_norm_sm90_workspace_bytes(groups, samples);
}

void launch(const std::vector<GhostGroupView>& groups, int64_t samples, const GhostResults& results,
            void* workspace, void* stream) {
  (portable ? launch_ghost_norm_mma : launch_ghost_norm_sm90)(groups, samples, results, workspace,
                                                              stream);
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "ghost_norm_lab: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
class Device {
 public:
  explicit Device(size_t count) : count_(count) {
    check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
  }
  ~Device() { cudaFree(data_); }
  Device(Device&& other) noexcept : data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  T* get() const { return data_; }
  void poison() { check(cudaMemset(data_, 0xff, count_ * sizeof(T)), "cudaMemset"); }
  void put(const std::vector<T>& from) {
    check(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "put");
  }
  std::vector<T> take() const {
    std::vector<T> to(count_);
    check(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "take");
    return to;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// A tensor on host (double, dense) and device (bfloat16, with gaps of NaN between rows and
// samples).
struct Operand {
  int64_t samples, tokens, width, token_stride, sample_stride;
  std::vector<double> host;
  Device<Number> device;

  GhostOperand view() const { return {device.get(), width, token_stride, sample_stride}; }
  const double* row(int64_t b, int64_t t) const { return &host[(b * tokens + t) * width]; }
};

std::mt19937 random_words(20240607);

Operand make_operand(int64_t samples, int64_t tokens, int64_t width, double scale, int64_t gap) {
  const int64_t token_stride = width + gap,
                sample_stride = (tokens + (gap > 0 ? 3 : 0)) * token_stride;
  Operand x{samples,
            tokens,
            width,
            token_stride,
            sample_stride,
            std::vector<double>(static_cast<size_t>(samples * tokens * width)),
            Device<Number>(static_cast<size_t>(samples * sample_stride))};
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  for (double& v : x.host) v = __bfloat162float(__float2bfloat16(normal(random_words)));
  return x;
}

// Position t + 1 becomes sign * position t, up to `rest`: with opposite signs in a and g the outer
// products of the two nearly cancel.
void cancel_neighbours(Operand& x, double sign, double rest) {
  for (int64_t b = 0; b < x.samples; ++b) {
    for (int64_t t = 0; t + 1 < x.tokens; t += 2) {
      double* even = &x.host[(b * x.tokens + t) * x.width];
      double* odd = even + x.width;
      for (int64_t i = 0; i < x.width; ++i) {
        const auto mixed = static_cast<float>(sign * even[i] + rest * odd[i]);
        odd[i] = __bfloat162float(__float2bfloat16(mixed));
      }
    }
  }
}

void upload(Operand& x) {
  std::vector<Number> raw(static_cast<size_t>(x.samples * x.sample_stride), __float2bfloat16(NAN));
  for (int64_t b = 0; b < x.samples; ++b) {
    for (int64_t t = 0; t < x.tokens; ++t) {
      Number* to = &raw[static_cast<size_t>(b * x.sample_stride + t * x.token_stride)];
      for (int64_t i = 0; i < x.width; ++i)
        to[i] = __float2bfloat16(static_cast<float>(x.row(b, t)[i]));
    }
  }
  x.device.put(raw);
}

struct Group {
  Operand a;
  std::vector<Operand> g;
};

double dot(const double* x, const double* y, int64_t count) {
  double sum[4] = {};
  for (int64_t i = 0; i < count; i += 4) {  // widths are multiples of 8
    for (int64_t k = 0; k < 4; ++k) sum[k] += x[i + k] * y[i + k];
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

struct Sums {
  double value = 0, magnitude = 0;
  double products = 0, squares = 0;  // over the diagonal: |a_t|^2 |g_t|^2, |a_t|^2 + |g_t|^2
};

// The magnitude is summed over slices of g's columns.
Sums true_sums(const Operand& a, const Operand& g, int64_t b, int64_t slices) {
  constexpr int64_t kBlock = 64;
  const int64_t blocks = (g.width + kBlock - 1) / kBlock;
  Sums sums;
  for (int64_t s = 0; s < a.tokens; ++s) {
    for (int64_t t = 0; t <= s; ++t) {
      const double of_a = dot(a.row(b, s), a.row(b, t), a.width) * (s == t ? 1 : 2);
      for (int64_t slice = 0; slice < slices; ++slice) {
        const int64_t from = blocks * slice / slices * kBlock;
        const int64_t to = std::min(blocks * (slice + 1) / slices * kBlock, g.width);
        const double product = of_a * dot(g.row(b, s) + from, g.row(b, t) + from, to - from);
        sums.value += product;
        sums.magnitude += std::fabs(product);
      }
    }
    const double a_square = dot(a.row(b, s), a.row(b, s), a.width);
    const double g_square = dot(g.row(b, s), g.row(b, s), g.width);
    sums.products += a_square * g_square;
    sums.squares += a_square + g_square;
  }
  return sums;
}

std::vector<GhostGroupView> views_of(const std::vector<Group>& groups) {
  std::vector<GhostGroupView> views;
  int64_t layers = 0, row = 0;
  for (const Group& group : groups) layers += static_cast<int64_t>(group.g.size());
  for (const Group& group : groups) {
    GhostGroupView& view = views.emplace_back();
    view.tokens = group.a.tokens;
    view.a = group.a.view();
    for (const Operand& g : group.g) {
      view.g.push_back(g.view());
      view.rows.push_back(layers - 1 - row++);  // any order of rows is the caller's right
    }
  }
  return views;
}

constexpr size_t kGuard = 4096;  // bytes behind the workspace and numbers behind the results

// What may be lost: rounding, and the unit's float32 sums, which are cut off in steps of 16
// columns; the portable kernel keeps those short.
double limit_of(const Group& group, const Operand& g) {
  if (portable) return 5e-7;
  return 5e-7 + static_cast<double>(group.a.width + g.width) / 16 * 0x1p-24;
}

// Lengths and spreads are never too small, and at most 1e-4 too large.
bool bounds_hold(const Sums& want, double positions, double length, double spread) {
  if (portable) return true;
  const auto holds = [](double exact, double found) {
    return found >= exact && found <= 1.0001 * exact + 1e-30;
  };
  return holds(std::sqrt(positions * want.products), length) &&
         holds(positions * want.squares, spread);
}

// Runs the groups and compares. The sample `spoiled` must come out as NaN, and no other. Errors
// count in units of the limit; `value_limit`, where given, stands in for value's.
void run_case(const std::string& name, std::vector<Group>& groups, int64_t spoiled = -1,
              double value_limit = 0) {
  const int64_t B = groups.front().a.samples;
  const std::vector<GhostGroupView> views = views_of(groups);
  int64_t layers = 0;
  for (const Group& group : groups) layers += static_cast<int64_t>(group.g.size());
  const auto bytes = static_cast<size_t>(workspace_bytes(views, B));
  Device<unsigned char> workspace(bytes + kGuard);
  const auto count = static_cast<size_t>(layers * B);
  Device<double> value(count + kGuard), magnitude(count + kGuard);
  Device<double> length(count + kGuard), spread(count + kGuard);
  const GhostResults results{value.get(), magnitude.get(), length.get(), spread.get()};
  std::vector<double> first_value, first_magnitude;
  bool same = true, guarded = true;
  for (int repeat = 0; repeat < 3; ++repeat) {
    workspace.poison();
    value.poison();
    magnitude.poison();
    length.poison();
    spread.poison();
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check(cudaDeviceSynchronize(), "before");
    if (repeat == 2) {  // the same through a captured graph
      cudaGraph_t graph;
      cudaGraphExec_t executable;
      check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
      launch(views, B, results, workspace.get(), stream);
      check(cudaStreamEndCapture(stream, &graph), "end of capture");
      check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
      check(cudaGraphLaunch(executable, stream), "graph launch");
      check(cudaStreamSynchronize(stream), name.c_str());
      check(cudaGraphExecDestroy(executable), "destroy");
      check(cudaGraphDestroy(graph), "destroy");
    } else {
      launch(views, B, results, workspace.get(), stream);
      check(cudaStreamSynchronize(stream), name.c_str());
    }
    check(cudaStreamDestroy(stream), "destroy");
    const std::vector<double> got_value = value.take(), got_magnitude = magnitude.take();
    const std::vector<unsigned char> room = workspace.take();
    for (size_t i = bytes; i < room.size(); ++i) guarded &= room[i] == 0xff;
    for (size_t i = count; i < count + kGuard; ++i)
      guarded &= std::isnan(got_value[i]) && std::isnan(got_magnitude[i]);
    if (repeat == 0) {
      first_value = got_value;
      first_magnitude = got_magnitude;
    }
    same &= std::memcmp(first_value.data(), got_value.data(), count * sizeof(double)) == 0;
    same &= std::memcmp(first_magnitude.data(), got_magnitude.data(), count * sizeof(double)) == 0;
  }
  double worst = 0, worst_value = 0;  // NaN where a number should be counts as infinite
  bool spoiled_shows = true, bounded = true;
  const std::vector<double> got_length = length.take(), got_spread = spread.take();
  for (size_t i = count; i < count + kGuard; ++i)
    guarded &= std::isnan(got_length[i]) && std::isnan(got_spread[i]);
  const int slices = portable || groups.size() > 1 ? 1 : ghost_norm_sm90_slices(views.front(), B);
  for (size_t n = 0; n < groups.size(); ++n) {
    for (size_t k = 0; k < groups[n].g.size(); ++k) {
      for (int64_t b = 0; b < B; ++b) {
        const auto at = static_cast<size_t>(views[n].rows[k] * B + b);
        if (b == spoiled) {
          spoiled_shows &= std::isnan(first_value[at]);
          continue;
        }
        const Sums want = true_sums(groups[n].a, groups[n].g[k], b, slices);
        bounded &= bounds_hold(want, static_cast<double>(groups[n].a.tokens), got_length[at],
                               got_spread[at]);
        const double value_error = std::fabs(first_value[at] - want.value) / want.magnitude;
        const double magnitude_error =
            std::fabs(first_magnitude[at] - want.magnitude) / want.magnitude;
        const double limit = limit_of(groups[n], groups[n].g[k]);
        const double error = std::max(value_error / (value_limit > 0 ? value_limit : limit),
                                      magnitude_error / limit);
        worst = std::isnan(error) || std::isnan(value_error) ? INFINITY : std::max(worst, error);
        worst_value = std::max(worst_value, value_error);
      }
    }
  }
  const bool pass = worst <= 1 && same && guarded && spoiled_shows && bounded;
  if (!pass) ++failures;
  std::printf("%s  %-52s value off by %.2e of magnitude; worst error %.2f of its limit%s%s%s%s%s\n",
              pass ? "PASS" : "FAIL", name.c_str(), worst_value, worst,
              slices > 1 ? (", slices: " + std::to_string(slices)).c_str() : "",
              same ? "" : ", runs differ", guarded ? "" : ", wrote past its end",
              spoiled_shows ? "" : ", NaN in a sample did not show",
              bounded ? "" : ", a length or spread is off");
  std::fflush(stdout);
}

Group make_group(int64_t B, int64_t T, int64_t i, const std::vector<int64_t>& widths, int64_t gap) {
  Group group{make_operand(B, T, i, 1, gap), {}};
  for (const int64_t o : widths) group.g.push_back(make_operand(B, T, o, 0.02, gap));
  return group;
}

void upload(Group& group) {
  upload(group.a);
  for (Operand& g : group.g) upload(g);
}

std::string label(const char* what, int64_t B, int64_t T, int64_t i,
                  const std::vector<int64_t>& widths) {
  std::string text = std::string(what) + " B=" + std::to_string(B) + " T=" + std::to_string(T) +
                     " " + std::to_string(i) + " ->";
  for (const int64_t o : widths) text += " " + std::to_string(o);
  return text;
}

void check_shapes() {
  const std::vector<int64_t> widths{8, 24, 136, 264};
  size_t turn = 0;
  for (const int64_t T : {1, 5, 64, 127, 128, 129, 257, 300, 400}) {
    for (const int64_t i : widths) {
      const int64_t B = 1 + static_cast<int64_t>(turn % 3);
      std::vector<int64_t> outputs;
      for (size_t k = 0; k <= turn % 3; ++k) outputs.push_back(widths[(turn + k) % 4]);
      const int64_t gap = turn % 2 == 0 ? 0 : 8;
      std::vector<Group> groups;
      groups.push_back(make_group(B, T, i, outputs, gap));
      upload(groups.back());
      run_case(label(gap > 0 ? "gaps" : "dense", B, T, i, outputs), groups);
      ++turn;
    }
    ++turn;
  }
}

void check_lists() {
  std::vector<Group> groups;  // a transformer block's pattern, lengths that differ by group
  groups.push_back(make_group(2, 300, 136, {136, 24, 24}, 0));
  groups.push_back(make_group(2, 300, 136, {136}, 8));
  groups.push_back(make_group(2, 129, 136, {264, 264}, 0));
  groups.push_back(make_group(2, 5, 264, {136}, 8));
  for (Group& group : groups) upload(group);
  run_case("four groups in one launch", groups);

  groups.clear();  // more groups and tensor maps than one launch takes
  for (int64_t n = 0; n < 40; ++n) {
    groups.push_back(make_group(3, 1 + 7 * n, 8 + 8 * (n % 5),
                                n % 3 == 0 ? std::vector<int64_t>{24, 8} : std::vector<int64_t>{16},
                                n % 2 * 8));
    upload(groups.back());
  }
  run_case("forty groups", groups);

  groups
      .clear();  // a head: few long pairs of tiles, in slices that divide neither its blocks nor it
  groups.push_back(make_group(7, 700, 72, {1288}, 8));
  upload(groups.back());
  run_case("a wide layer by itself", groups);

  groups.clear();  // more pairs of tiles than the list takes
  groups.push_back(make_group(9001, 5, 8, {8}, 0));
  upload(groups.back());
  run_case("9001 samples of 5 positions", groups);
  groups.clear();
  groups.push_back(make_group(560, 600, 8, {8}, 0));
  upload(groups.back());
  run_case("560 samples of 600 positions", groups);
}

void check_cancelling() {
  for (const double rest : {0.1, 0.02}) {
    std::vector<Group> groups;
    groups.push_back(make_group(2, 256, 768, {1280}, 0));
    cancel_neighbours(groups[0].a, 1, rest);
    cancel_neighbours(groups[0].g[0], -1, rest);
    upload(groups[0]);
    const Sums sums = true_sums(groups[0].a, groups[0].g[0], 0, 1);
    char name[80];
    std::snprintf(name, sizeof name, "cancelling positions, value %.1e of magnitude",
                  sums.value / sums.magnitude);
    run_case(name, groups, -1, 1e-6);
  }
}

void check_spoiled() {
  for (const int64_t T : {1, 100, 300}) {
    for (int64_t spoiled = 0; spoiled < 3; ++spoiled) {
      std::vector<Group> groups;
      groups.push_back(make_group(3, T, 136, {24, 264}, 0));
      for (Operand* x : {&groups[0].a, &groups[0].g[0], &groups[0].g[1]}) {
        x->host[static_cast<size_t>((spoiled * T + T / 2) * x->width + 3)] = NAN;
      }
      upload(groups[0]);
      run_case("NaN in sample " + std::to_string(spoiled) + " of 3, T=" + std::to_string(T), groups,
               spoiled);
    }
  }
}

// ---- large shapes ----

__global__ void fill_normal_kernel(Number* x, size_t count, uint64_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    const float u = (static_cast<float>(z >> 40) + 0.5f) / 16777216.0f;
    const float v = static_cast<float>(z & 0xffffff) / 16777216.0f;
    x[i] = __float2bfloat16(scale * sqrtf(-2.0f * logf(u)) * cospif(2.0f * v));
  }
}

// One sample's sums in double: a block per 16 x 16 position pairs, atomics into the two results.
__global__ void double_sums_kernel(const Number* a, int i, const Number* g, int o, int T,
                                   double* sums) {
  __shared__ double left[16][17], right[16][17];
  const int s = blockIdx.y * 16 + threadIdx.y;
  double gram[2] = {0, 0};
  for (int which = 0; which < 2; ++which) {
    const Number* x = which == 0 ? a : g;
    const int width = which == 0 ? i : o;
    for (int k = 0; k < width; k += 16) {
      const int c = k + threadIdx.x, t_row = blockIdx.x * 16 + threadIdx.y;
      left[threadIdx.y][threadIdx.x] =
          s < T && c < width ? __bfloat162float(x[int64_t{s} * width + c]) : 0.0f;
      right[threadIdx.y][threadIdx.x] =
          t_row < T && c < width ? __bfloat162float(x[int64_t{t_row} * width + c]) : 0.0f;
      __syncthreads();
      for (int n = 0; n < 16; ++n) gram[which] += left[threadIdx.y][n] * right[threadIdx.x][n];
      __syncthreads();
    }
  }
  atomicAdd(sums, gram[0] * gram[1]);
  atomicAdd(sums + 1, fabs(gram[0] * gram[1]));
}

struct BlockShape {
  const char* name;
  int64_t B, T;
  struct Layers {
    int64_t i;
    std::vector<int64_t> o;
  };
  std::vector<Layers> groups;
};

struct Block {
  std::vector<Device<Number>> memory;
  std::vector<GhostGroupView> views;
  int64_t layers = 0;
  double useful = 0;  // floating-point operations: the lower half of each matrix

  explicit Block(const BlockShape& shape) {
    uint64_t seed = 1;
    const auto tensor = [&](int64_t width, float scale) -> GhostOperand {
      const auto count = static_cast<size_t>(shape.B * shape.T * width);
      memory.emplace_back(count);
      fill_normal_kernel<<<2048, 256>>>(memory.back().get(), count, seed++, scale);
      useful += static_cast<double>(shape.B) * static_cast<double>(shape.T) *
                static_cast<double>(shape.T) * static_cast<double>(width);
      return {memory.back().get(), width, width, shape.T * width};
    };
    for (const auto& group : shape.groups) {
      GhostGroupView& view = views.emplace_back();
      view.tokens = shape.T;
      view.a = tensor(group.i, 1);
      for (const int64_t o : group.o) {
        view.g.push_back(tensor(o, 0.02f));
        view.rows.push_back(layers++);
      }
    }
    check(cudaDeviceSynchronize(), "fill");
  }
};

// Relative errors of value at real widths: the unit's truncated sums show here.
void check_large(const BlockShape& shape) {
  const Block block(shape);
  Device<unsigned char> workspace(static_cast<size_t>(workspace_bytes(block.views, shape.B)));
  Device<double> value(static_cast<size_t>(block.layers * shape.B)),
      magnitude(static_cast<size_t>(block.layers * shape.B)),
      length(static_cast<size_t>(block.layers * shape.B)),
      spread(static_cast<size_t>(block.layers * shape.B)), want(2);
  value.poison();
  magnitude.poison();
  launch(block.views, shape.B, {value.get(), magnitude.get(), length.get(), spread.get()},
         workspace.get(), nullptr);
  const std::vector<double> got = value.take(), got_magnitude = magnitude.take();
  for (const GhostGroupView& group : block.views) {
    for (size_t k = 0; k < group.g.size(); ++k) {
      const int64_t b = shape.B - 1;
      want.put({0, 0});
      const auto tiles = static_cast<unsigned>((shape.T + 15) / 16);
      double_sums_kernel<<<dim3(tiles, tiles), dim3(16, 16)>>>(
          static_cast<const Number*>(group.a.data) + b * group.a.sample_stride,
          static_cast<int>(group.a.width),
          static_cast<const Number*>(group.g[k].data) + b * group.g[k].sample_stride,
          static_cast<int>(group.g[k].width), static_cast<int>(shape.T), want.get());
      const std::vector<double> truth = want.take();
      const auto at = static_cast<size_t>(group.rows[k] * shape.B + b);
      const double error = (got[at] - truth[0]) / truth[0],
                   magnitude_error = (got_magnitude[at] - truth[1]) / truth[1];
      const double limit = portable ? 1e-6 : 1e-4;
      const bool pass = std::fabs(error) < limit && std::fabs(magnitude_error) < limit;
      if (!pass) ++failures;
      std::printf(
          "%s  %s T=%lld %lld -> %lld: value off by %+.2e, magnitude by %+.2e (limit %.0e)\n",
          pass ? "PASS" : "FAIL", shape.name, static_cast<long long>(shape.T),
          static_cast<long long>(group.a.width), static_cast<long long>(group.g[k].width), error,
          magnitude_error, limit);
    }
  }
  std::fflush(stdout);
}

// A block's tensors are several times the second-level cache: no run finds the last one's.
void time_block(const BlockShape& shape) {
  const Block block(shape);
  Device<unsigned char> workspace(static_cast<size_t>(workspace_bytes(block.views, shape.B)));
  Device<double> value(static_cast<size_t>(block.layers * shape.B)),
      magnitude(static_cast<size_t>(block.layers * shape.B)),
      length(static_cast<size_t>(block.layers * shape.B)),
      spread(static_cast<size_t>(block.layers * shape.B));
  const GhostResults results{value.get(), magnitude.get(), length.get(), spread.get()};
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  std::vector<float> times;
  // Several at a time: the host prepares the next launch while the last one runs.
  constexpr int kTogether = 8;
  for (int repeat = 0; repeat < 12; ++repeat) {
    check(cudaEventRecord(start), "record");
    for (int i = 0; i < kTogether; ++i) {
      launch(block.views, shape.B, results, workspace.get(), nullptr);
    }
    check(cudaEventRecord(stop), "record");
    check(cudaEventSynchronize(stop), "synchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "elapsed");
    if (repeat >= 2) times.push_back(ms / kTogether);
  }
  std::sort(times.begin(), times.end());
  const double ms = times[times.size() / 2];
  std::printf(
      "%-12s B=%lld T=%lld: %.4f ms a block (%.4f to %.4f), %.0f useful TFLOP/s; floor at "
      "989 TFLOP/s %.4f ms\n",
      shape.name, static_cast<long long>(shape.B), static_cast<long long>(shape.T), ms,
      times.front(), times.back(), block.useful / ms * 1e-9, block.useful / 989e9);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  bool small_only = false;
  for (int n = 1; n < argc; ++n) {
    small_only |= std::strcmp(argv[n], "--check") == 0;
    portable |= std::strcmp(argv[n], "--portable") == 0;
  }
  check_shapes();
  check_lists();
  check_cancelling();
  check_spoiled();
  if (!small_only) {
    const std::vector<BlockShape::Layers> llama{
        {4096, {4096, 1024, 1024}}, {4096, {4096}}, {4096, {14336, 14336}}, {14336, {4096}}};
    const std::vector<BlockShape::Layers> dit{
        {1024, {3072}}, {1024, {1024}}, {1024, {4096}}, {4096, {1024}}};
    check_large({"Llama-8B", 2, 1000, llama});
    for (const int64_t T : {1024, 2048, 4096}) time_block({"Llama-8B", 2, T, llama});
    time_block({"DiT-L", 16, 1024, dit});
    time_block({"head of 1B", 8, 1024, {{2048, {128256}}}});
    time_block({"head of Qwen", 4, 2048, {{1536, {151936}}}});
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
