#include "runtime/train/rank_statistics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace moonshard::train {

int64_t RankCounts::before(int rank) const {
  return std::accumulate(samples.begin(), samples.begin() + rank, int64_t{0});
}

RankStatistics::RankStatistics(comm::World& world, c10::Device device)
    : size_(world.size()), on_(device) {
  if (alone()) return;
  host_ = world.group("statistics", c10::kCPU);
  device_ = device.is_cpu() ? host_ : world.group("statistics", device);
}

void RankStatistics::start_counts(int64_t samples, int64_t tokens) {
  const at::Tensor own = at::tensor({samples, tokens}, at::kLong);
  counts_row_ = alone() ? own : at::empty({2 * size_}, at::kLong);
  if (!alone()) counts_under_way_ = host_->all_gather(counts_row_, own, "sample counts");
  counts_ = {};
}

const RankCounts& RankStatistics::counts() {
  if (!counts_.samples.empty()) return counts_;
  counts_under_way_.wait();
  const int64_t* numbers = counts_row_.const_data_ptr<int64_t>();
  for (int rank = 0; rank < size_; ++rank) {
    counts_.samples.push_back(numbers[2 * rank]);
    counts_.all_samples += numbers[2 * rank];
    counts_.all_tokens += numbers[2 * rank + 1];
  }
  return counts_;
}

LossSums RankStatistics::sum_losses(const at::Tensor& losses) {
  const at::Tensor host = losses.to(at::kCPU, at::kDouble);
  const at::Tensor finite = host.isfinite();
  at::Tensor sums =
      at::tensor({host.masked_select(finite).sum().item<double>(), finite.sum().item<double>(),
                  static_cast<double>(host.numel()) - finite.sum().item<double>()},
                 at::kDouble);
  if (!alone()) host_->all_reduce(sums, "losses").wait();
  return {sums[0].item<double>(), sums[1].item<double>(), sums[2].item<double>()};
}

void RankStatistics::start_norms(const at::Tensor& norms) {
  if (alone()) {
    norms_row_ = norms;
    return;
  }
  const auto& samples = counts().samples;
  const int64_t most = *std::max_element(samples.begin(), samples.end());
  const auto options = at::TensorOptions().dtype(at::kDouble).device(on_);
  at::Tensor own = at::zeros({most}, options);
  if (norms.defined()) own.narrow(0, 0, norms.size(0)).copy_(norms);
  norms_row_ = at::empty({most * size_}, options);
  if (most > 0) norms_under_way_ = device_->all_gather(norms_row_, own, "norms");
}

at::Tensor RankStatistics::norms() {
  if (!norms_row_.defined()) return at::zeros({0}, at::kDouble);
  norms_under_way_.wait();
  if (alone()) return norms_row_.to(at::kCPU, at::kDouble);
  const auto& samples = counts().samples;
  const int64_t most = *std::max_element(samples.begin(), samples.end());
  const at::Tensor host = norms_row_.to(at::kCPU);
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < size_; ++rank)
    parts.push_back(host.narrow(0, most * rank, samples[static_cast<size_t>(rank)]));
  return at::cat(parts);
}

at::Tensor RankStatistics::summed(const at::Tensor& tensor) {
  if (alone()) return tensor;
  const at::Tensor sum = tensor.clone();
  device_->all_reduce(sum, "squared norms").wait();
  return sum;
}

}  // namespace moonshard::train
