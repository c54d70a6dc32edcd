// clipped_sum whose tiles are not stored: the sums get their noise where they are, in registers,
// and the weights are updated from them. The gradient never exists in memory.
//
// With the schedule of two tiles at a time noise and update of one tile, which are work for the
// integer units and for memory, run beside the products of the other, which are work for the
// tensor cores.
#include <algorithm>

#include "kernels/clipped_sum/clipped_sum_sm90.cuh"
#include "kernels/clipped_update/clipped_update_launch.h"
#include "kernels/fused_update/fused_update_launchers.cuh"

namespace moonshard::kernels {
namespace {

using sample_gemm::kValues;
using sample_gemm::Work;

constexpr int kMultiplyingThreads = 2 * sample_gemm::kGroupThreads;
static_assert(kTileElements == kClippedUpdateColumns && sample_gemm::kGroupThreads == 128);

// Sixteen normals' radii and turns. A radius in the tail needs a second block of words: it is drawn
// for all eight, in the rare case that one of them is there.
struct NormalBlock {
  float radius[8];
  uint32_t turn[8];

  __device__ __forceinline__ NormalBlock(const Rule<float>& rule, uint64_t block,
                                         uint32_t parameter) {
    const ChaChaWords words = noise_words(rule.secret_key, block, rule.noise_step, parameter);
    uint32_t smallest = words.word[0];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      smallest = min(smallest, words.word[2 * k]);
      radius[k] = radius_of_word(words.word[2 * k]);
      turn[k] = words.word[2 * k + 1];
    }
    if (smallest >= kTailWord) return;
    const ChaChaWords more =
        chacha<kNoiseRounds, 1>(rule.secret_key, tail_block(block), rule.noise_step, parameter);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (words.word[2 * k] < kTailWord)
        radius[k] = radius_in_tail(words.word[2 * k], more.word[2 * k]);
    }
  }
};

template <class Shape_, class Value, UpdateKind kind>
class ClippedUpdate {
 public:
  using Shape = Shape_;

  struct Problem : sample_gemm::TiledProblem<Shape> {
    Part<float> part;
  };
  struct Params {
    Problem problem[sample_gemm::kMostProblems];
    int num_problems, num_tiles;
    const float* factors;
    int samples;
    float* scratch;
    Rule<float> rule;
  };
  using Shared = CountedSamples;

  struct Segments : SumSegments {
    __device__ __forceinline__ Segments(const Params& params, const Shared& shared,
                                        const Work& work)
        : SumSegments(shared, params.problem[work.problem].k_tiles, 0, 1) {}
  };

  __device__ static void prepare(const Params& params, Shared& shared) {
    shared.find(params.factors, params.samples);
  }

  __device__ __forceinline__ ClippedUpdate(const Params& params, const Shared& shared,
                                           const Work& work)
      : params_(params), work_(work), factor_(shared, 0) {}

  template <class Accumulators>
  __device__ __forceinline__ bool enter(Accumulators& sum, int segment) {
    return factor_.move(sum, segment, [&] { put_aside(sum); });
  }

  template <class Accumulators>
  __device__ __forceinline__ void finish(Accumulators& sum, int segments) {
    if (segments == 0) {  // no sample counts: noise alone
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kValues; ++v) sum(v) = 0.0f;
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kValues; ++v) sum(v) *= factor_.value;
    }
    if (is_aside_) {
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kValues; ++v) sum(v) += aside()[v * kMultiplyingThreads];
    }
    exchange_columns(sum);
    // Block after block of noise. Registers cannot be indexed: they are moved past instead, so that
    // the loop's code fits into the instruction cache.
    float own[kValues];
    CUTLASS_PRAGMA_UNROLL
    for (int k = 0; k < kBlocks; ++k) {
      const int h = k / 4, n = k % 4;
      CUTLASS_PRAGMA_UNROLL
      for (int q = 0; q < 4; ++q) {
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < 4; ++j)
          own[16 * k + 4 * q + j] = sum(8 * (n + 4 * q) + 2 * h + j % 2 + j / 2 * 4);
      }
    }
    constexpr int kTogether = 2;
#pragma unroll 1
    for (int k = 0; k < kBlocks; k += kTogether) {
      CUTLASS_PRAGMA_UNROLL
      for (int u = 0; u < kTogether; ++u) update_block(k + u, own + 16 * u);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kValues - 16 * kTogether; ++v) own[v] = own[v + 16 * kTogether];
    }
  }

 private:
  static constexpr int kBlocks = kValues / 16;  // of noise, per thread

  // Sixteen sums: groups of four, each 64 columns after the one before.
  __device__ __forceinline__ void update_block(int block, const float* sums) const {
    const Problem& p = params_.problem[work_.problem];
    const Part<float>& part = p.part;
    const Rule<float>& rule = params_.rule;
    const int row = work_.row + sample_gemm::thread_row<Shape>() + 8 * (block / 4);
    if (row >= p.o) return;
    const int64_t first =
        static_cast<int64_t>(row) * p.i + work_.column + exchanged_column() + 16 * (block % 4);
    Values<Value> value[4];
    Moments<Value, kind, float> moments[4];
    Four<float> before[4];
    const bool adds = part.grad != nullptr;
    CUTLASS_PRAGMA_UNROLL
    for (int q = 0; q < 4; ++q) {
      const WholeGroup lanes(first / 4 + q * (kTileRow / 4), 0, 0);
      value[q].begin(part, lanes);
      moments[q].begin(part, lanes);
      if (adds) before[q] = load<float>(part.grad, lanes);
    }
    const NoisePlace place = noise_place(first);
    const NormalBlock normals(rule, place.block, part.parameter);
    CUTLASS_PRAGMA_UNROLL
    for (int q = 0; q < 4; ++q) {
      const WholeGroup lanes(first / 4 + q * (kTileRow / 4), 0, 0);
      CUTLASS_PRAGMA_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        const int k = 2 * q + pair;
        const float radius = rule.noise * normals.radius[k];
        const SineCosine angle = noise_turn(normals.turn[k]);
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 2; ++e) {
          const int j = 2 * pair + e;
          const float sum = adds ? before[q].number[j] + sums[4 * q + j] : sums[4 * q + j];
          const float g = noised(sum, radius, e == 0 ? angle.cosine : angle.sine, rule);
          value[q].set(
              j, moments[q].update(j, value[q].template get<float>(j), g * rule.scale, part, rule));
        }
      }
      value[q].end(part, lanes);
      moments[q].end(part, lanes);
    }
  }

  // This thread's place in its block's part of the scratch memory.
  __device__ __forceinline__ float* aside() const {
    return params_.scratch + static_cast<int64_t>(blockIdx.x) * kValues * kMultiplyingThreads +
           threadIdx.x - sample_gemm::kGroupThreads;
  }

  template <class Accumulators>
  __device__ __forceinline__ void put_aside(const Accumulators& sum) {
    CUTLASS_PRAGMA_UNROLL
    for (int v = 0; v < kValues; ++v) {
      float& to = aside()[v * kMultiplyingThreads];
      to = is_aside_ ? to + sum(v) * factor_.value : sum(v) * factor_.value;
    }
    is_aside_ = true;
  }

  const Params& params_;
  const Work work_;
  RunningFactor factor_;
  bool is_aside_ = false;
};

template <class Shape, class Value, UpdateKind kind>
void launch_some(const ClippedUpdateProblem* problems, int count, const float* factors,
                 const RawUpdateRule& rule, float* scratch, cudaStream_t stream) {
  using Operation = ClippedUpdate<Shape, Value, kind>;
  typename Operation::Params params{};
  params.num_problems = count;
  params.factors = factors;
  params.samples = static_cast<int>(problems[0].in.samples);
  params.scratch = scratch;
  set_rule(params.rule, rule);
  for (int n = 0; n < count; ++n) {
    auto& to = params.problem[n];
    params.num_tiles =
        sample_gemm::describe_problem<Shape>(to, problems[n].in, 1, params.num_tiles);
    to.part = part_of<float>(problems[n].part, rule, 0);
  }
  sample_gemm::launch<Operation>(params, stream);
  check_launch("clipped_update");
}

template <class Shape, class Value>
void launch_rule(const ClippedUpdateProblem* problems, int count, const float* factors,
                 const RawUpdateRule& rule, float* scratch, cudaStream_t stream) {
  const auto launch = rule.kind == UpdateKind::Sgd ? launch_some<Shape, Value, UpdateKind::Sgd>
                                                   : launch_some<Shape, Value, UpdateKind::Adam>;
  launch(problems, count, factors, rule, scratch, stream);
}

template <class Shape>
void launch_format(const ClippedUpdateProblem* problems, int count, const float* factors,
                   const RawUpdateRule& rule, float* scratch, cudaStream_t stream) {
  const auto launch = rule.value_format == UpdateFormat::Split ? launch_rule<Shape, SplitFloat>
                                                               : launch_rule<Shape, __nv_bfloat16>;
  launch(problems, count, factors, rule, scratch, stream);
}

}  // namespace

int64_t clipped_update_scratch() {
  int device = 0, multiprocessors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  return int64_t{multiprocessors} * kValues * kMultiplyingThreads;
}

void launch_clipped_update(const ClippedUpdateProblem* problems, int count, const float* factors,
                           const RawUpdateRule& rule, GemmSchedule schedule, float* scratch,
                           void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  const auto launch = schedule == GemmSchedule::Cooperative
                          ? launch_format<sample_gemm::Shape<GemmSchedule::Cooperative>>
                          : launch_format<sample_gemm::Shape<GemmSchedule::PingPong>>;
  for (int first = 0; first < count; first += sample_gemm::kMostProblems)
    launch(problems + first, std::min(count - first, sample_gemm::kMostProblems), factors, rule,
           scratch, stream);
}

}  // namespace moonshard::kernels
