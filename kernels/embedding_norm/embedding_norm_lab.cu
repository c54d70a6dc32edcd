// Lab of embedding_norm: compares both kernels with double-precision sums on the host over odd
// shapes, then times them. Run on a GPU: build/bin/embedding_norm_lab [--check]
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/embedding_norm/embedding_norm_launch.h"

namespace {

using namespace moonshard::kernels;

int failures = 0;
std::mt19937 random_words(7);

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "embedding_norm_lab: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
class Device {
 public:
  explicit Device(size_t count) : count_(count) {
    check(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T)), "cudaMalloc");
    check(cudaMemset(data_, 0xff, count * sizeof(T)), "cudaMemset");  // NaN
  }
  explicit Device(const std::vector<T>& from) : Device(from.size()) { put(from); }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  T* get() const { return data_; }
  void put(const std::vector<T>& from) {
    check(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "put");
  }
  std::vector<T> take() const {
    std::vector<T> to(count_);
    check(cudaDeviceSynchronize(), "kernel");
    check(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "take");
    return to;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

struct Sorted {
  std::vector<int64_t> ids, order;
};

Sorted sort_ids(const int64_t* ids, int64_t count) {
  Sorted sorted;
  sorted.order.resize(static_cast<size_t>(count));
  std::iota(sorted.order.begin(), sorted.order.end(), 0);
  std::stable_sort(sorted.order.begin(), sorted.order.end(),
                   [&](int64_t x, int64_t y) { return ids[x] < ids[y]; });
  for (const int64_t p : sorted.order) sorted.ids.push_back(ids[p]);
  return sorted;
}

// Each sample's ids for themselves, one sample after the other.
Sorted sort_samples(const std::vector<int64_t>& ids, int64_t samples, int64_t tokens) {
  Sorted all;
  for (int64_t b = 0; b < samples; ++b) {
    const Sorted one = sort_ids(&ids[static_cast<size_t>(b * tokens)], tokens);
    all.ids.insert(all.ids.end(), one.ids.begin(), one.ids.end());
    all.order.insert(all.order.end(), one.order.begin(), one.order.end());
  }
  return all;
}

struct Case {
  int64_t B, T, d, vocabulary, padding_id, gap;
  bool with_factors;
};

template <class T>
T narrow(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return __float2bfloat16(x);
}

template <class T>
void run_case(const Case& c) {
  std::vector<int64_t> ids(static_cast<size_t>(c.B * c.T));
  for (int64_t& id : ids)
    id = static_cast<int64_t>(random_words() % static_cast<uint64_t>(c.vocabulary));
  const int64_t token_stride = c.d + c.gap, sample_stride = c.T * token_stride + c.gap;
  std::vector<T> raw(static_cast<size_t>(c.B * sample_stride), narrow<T>(NAN));
  std::normal_distribution<float> normal;
  for (int64_t b = 0; b < c.B; ++b) {
    for (int64_t t = 0; t < c.T; ++t) {
      for (int64_t k = 0; k < c.d; ++k)
        raw[static_cast<size_t>(b * sample_stride + t * token_stride + k)] =
            narrow<T>(normal(random_words));
    }
  }
  std::vector<double> factors(static_cast<size_t>(c.B));
  for (size_t b = 0; b < factors.size(); ++b) factors[b] = 0.3 + 0.2 * static_cast<double>(b);
  if (c.with_factors) {  // a dropped sample: its numbers are not finite and must not show
    factors[0] = 0;
    raw[static_cast<size_t>((c.T / 2) * token_stride)] = narrow<T>(NAN);
  }
  const auto at = [&](int64_t b, int64_t t, int64_t k) {
    return static_cast<double>(
        static_cast<float>(raw[static_cast<size_t>(b * sample_stride + t * token_stride + k)]));
  };

  const Device<T> g(raw);
  const EmbeddingRows rows{g.get(),      !std::is_same_v<T, float>, c.B, c.T, c.d, token_stride,
                           sample_stride};
  // norms
  const Sorted by_sample = sort_samples(ids, c.B, c.T);
  const Device<int64_t> sample_ids(by_sample.ids), sample_order(by_sample.order);
  Device<double> squares(static_cast<size_t>(c.B));
  Device<unsigned char> workspace(static_cast<size_t>(embedding_norm_workspace_bytes(rows)));
  launch_embedding_norm(sample_ids.get(), sample_order.get(), rows, c.padding_id, squares.get(),
                        workspace.get(), nullptr);
  const std::vector<double> got = squares.take();
  double worst_norm = 0;
  for (int64_t b = 0; b < c.B; ++b) {
    std::map<int64_t, std::vector<double>> table;
    for (int64_t t = 0; t < c.T; ++t) {
      const int64_t id = ids[static_cast<size_t>(b * c.T + t)];
      if (id == c.padding_id) continue;
      auto& row = table.try_emplace(id, static_cast<size_t>(c.d)).first->second;
      for (int64_t k = 0; k < c.d; ++k) row[static_cast<size_t>(k)] += at(b, t, k);
    }
    double want = 0;
    for (const auto& [id, row] : table) {
      for (const double x : row) want += x * x;
    }
    if (b == 0 && c.with_factors) {  // holds a NaN, unless that position was padding
      if (std::isnan(want) != std::isnan(got[0])) worst_norm = INFINITY;
      continue;
    }
    const double error = std::fabs(got[static_cast<size_t>(b)] - want) / std::max(want, 1e-30);
    worst_norm = std::isnan(error) ? INFINITY : std::max(worst_norm, error);
  }
  // the sum
  const Sorted together = sort_ids(ids.data(), c.B * c.T);
  const Device<int64_t> all_ids(together.ids), all_order(together.order);
  const int64_t out_stride = c.d + c.gap;
  std::vector<float> before(static_cast<size_t>(c.vocabulary * out_stride), NAN);
  std::vector<double> want(before.size(), NAN);
  std::vector<bool> occurs(static_cast<size_t>(c.vocabulary));
  for (const int64_t id : ids) occurs[static_cast<size_t>(id)] = id != c.padding_id;
  for (int64_t id = 0; id < c.vocabulary; ++id) {  // rows that do not occur keep their NaN
    if (!occurs[static_cast<size_t>(id)]) continue;
    for (int64_t k = 0; k < c.d; ++k) {
      const auto place = static_cast<size_t>(id * out_stride + k);
      before[place] = normal(random_words);
      want[place] = before[place];
    }
  }
  for (int64_t b = 0; b < c.B; ++b) {
    const double factor = c.with_factors ? factors[static_cast<size_t>(b)] : 1;
    if (factor == 0) continue;
    for (int64_t t = 0; t < c.T; ++t) {
      const int64_t id = ids[static_cast<size_t>(b * c.T + t)];
      if (id == c.padding_id) continue;
      for (int64_t k = 0; k < c.d; ++k)
        want[static_cast<size_t>(id * out_stride + k)] += factor * at(b, t, k);
    }
  }
  const Device<double> device_factors(factors);
  double worst_sum = 0;
  std::vector<float> first;
  bool same = true;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Device<float> out(before);
    launch_embedding_sum(all_ids.get(), all_order.get(), rows,
                         c.with_factors ? device_factors.get() : nullptr, c.padding_id, out.get(),
                         out_stride, nullptr);
    const std::vector<float> sums = out.take();
    if (repeat == 0) first = sums;
    same &= std::memcmp(first.data(), sums.data(), sums.size() * sizeof(float)) == 0;
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) != std::isnan(static_cast<double>(first[i]))) {
      worst_sum = INFINITY;
    } else if (!std::isnan(want[i])) {
      worst_sum =
          std::max(worst_sum, std::fabs(first[i] - want[i]) / std::max(std::fabs(want[i]), 1.0));
    }
  }
  // Norms are double throughout; the sum is rounded to float32 once.
  const bool pass = worst_norm < 1e-12 && worst_sum < 1.2e-7 && same;
  if (!pass) ++failures;
  std::printf(
      "%s  %-8s B=%lld T=%lld d=%lld ids=%lld padding=%lld gap=%lld%s: norms off by %.1e, sum "
      "by %.1e%s\n",
      pass ? "PASS" : "FAIL", std::is_same_v<T, float> ? "float32" : "bfloat16",
      static_cast<long long>(c.B), static_cast<long long>(c.T), static_cast<long long>(c.d),
      static_cast<long long>(c.vocabulary), static_cast<long long>(c.padding_id),
      static_cast<long long>(c.gap), c.with_factors ? " factors" : "", worst_norm, worst_sum,
      same ? "" : ", runs differ");
  std::fflush(stdout);
}

double median_ms(const std::function<void(int)>& work) {
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  std::vector<float> times;
  // Many at a time: the host prepares the next launch while the last one runs.
  constexpr int kTogether = 32;
  for (int repeat = 0; repeat < 12; ++repeat) {
    check(cudaEventRecord(start), "record");
    for (int i = 0; i < kTogether; ++i) work(i);
    check(cudaEventRecord(stop), "record");
    check(cudaEventSynchronize(stop), "synchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "elapsed");
    if (repeat >= 2) times.push_back(ms / kTogether);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void time_shape(int64_t B, int64_t T, int64_t d, int64_t vocabulary) {
  const auto count = static_cast<size_t>(B * T * d);
  const int copies = static_cast<int>(std::max<size_t>(1, (size_t{256} << 20) / (count * 2)));
  Device<__nv_bfloat16> g(count * static_cast<size_t>(copies));
  check(cudaMemset(g.get(), 0, count * static_cast<size_t>(copies) * 2), "cudaMemset");
  Device<float> out(static_cast<size_t>(vocabulary * d));
  check(cudaMemset(out.get(), 0, static_cast<size_t>(vocabulary * d) * 4), "cudaMemset");
  std::vector<int64_t> ids(static_cast<size_t>(B * T));
  for (int64_t& id : ids) {  // as in text: low ids are frequent
    const double u = static_cast<double>(random_words()) / 4294967296.0;
    id = static_cast<int64_t>(u * u * u * static_cast<double>(vocabulary));
  }
  const Sorted by_sample = sort_samples(ids, B, T), together = sort_ids(ids.data(), B * T);
  std::vector<int64_t> distinct = together.ids;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const Device<int64_t> sample_ids(by_sample.ids), sample_order(by_sample.order),
      all_ids(together.ids), all_order(together.order);
  const Device<double> factors(std::vector<double>(static_cast<size_t>(B), 0.5));
  Device<double> squares(static_cast<size_t>(B));
  const auto rows = [&](int i) -> EmbeddingRows {
    return {g.get() + static_cast<size_t>(i % copies) * count, true, B, T, d, d, T * d};
  };
  Device<unsigned char> workspace(static_cast<size_t>(embedding_norm_workspace_bytes(rows(0))));
  const double norm_ms = median_ms([&](int i) {
    launch_embedding_norm(sample_ids.get(), sample_order.get(), rows(i), -1, squares.get(),
                          workspace.get(), nullptr);
  });
  const double sum_ms = median_ms([&](int i) {
    launch_embedding_sum(all_ids.get(), all_order.get(), rows(i), factors.get(), -1, out.get(), d,
                         nullptr);
  });
  const double norm_bytes = static_cast<double>(count) * 2;
  const double sum_bytes =
      norm_bytes + 8 * static_cast<double>(distinct.size()) * static_cast<double>(d);
  std::printf(
      "B=%lld T=%lld d=%lld: norms %.4f ms (%.2f TB/s), sum %.4f ms (%.2f TB/s), floor at "
      "4.8 TB/s %.4f and %.4f ms\n",
      static_cast<long long>(B), static_cast<long long>(T), static_cast<long long>(d), norm_ms,
      norm_bytes / norm_ms * 1e-9, sum_ms, sum_bytes / sum_ms * 1e-9, norm_bytes / 4.8e9,
      sum_bytes / 4.8e9);
}

}  // namespace

int main(int argc, char** argv) {
  size_t turn = 0;
  for (const int64_t T : {1, 5, 31, 32, 33, 64, 100, 300}) {
    for (const int64_t vocabulary : {1, 3, 40, 5000}) {
      const int64_t widths[] = {4, 1, 100, 3, 516, 1028, 8};
      const Case c{1 + static_cast<int64_t>(turn % 3),
                   T,
                   widths[turn % 7],
                   vocabulary,
                   turn % 2 == 0 ? -1 : 0,
                   turn % 5 == 0   ? 1
                   : turn % 5 == 1 ? 4
                                   : 0,
                   turn % 4 > 1};
      run_case<__nv_bfloat16>(c);
      run_case<float>(c);
      ++turn;
    }
    ++turn;
  }
  if (argc <= 1 || std::strcmp(argv[1], "--check") != 0) {
    for (const int64_t T : {1024, 4096}) time_shape(2, T, 4096, 128256);
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
