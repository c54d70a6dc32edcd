#include "runtime/train/step_report.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/base/check.h"

namespace moonshard::train {

std::vector<double> to_doubles(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU, at::kDouble).contiguous();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

int64_t RankCounts::before(int rank) const {
  return std::accumulate(samples.begin(), samples.begin() + rank, int64_t{0});
}

RankStatistics::RankStatistics(comm::World& world, c10::Device device)
    : size_(world.size()), trainer_(world.next_number()), on_(device) {
  if (alone()) return;
  host_ = world.group("statistics", c10::kCPU);
  device_ = device.is_cpu() ? host_ : world.group("statistics", device);
}

void RankStatistics::start_counts(const OwnCounts& counts) {
  const at::Tensor own =
      at::tensor({counts.samples, counts.tokens, counts.most_samples, counts.most_tokens_per_sample,
                  counts.step, trainer_, counts.way, int64_t{counts.awaits_decision},
                  int64_t{counts.takes_other_plan}},
                 at::kLong);
  counts_row_ = alone() ? own : at::empty({own.numel() * size_}, at::kLong);
  if (!alone()) counts_under_way_ = host_->all_gather(counts_row_, own, "sample counts");
  counts_ = {};
}

const RankCounts& RankStatistics::counts() {
  if (!counts_.samples.empty()) return counts_;
  counts_under_way_.wait();
  RankCounts counts;
  const int64_t fields = counts_row_.numel() / size_;
  const int64_t* first = counts_row_.const_data_ptr<int64_t>();
  for (int rank = 0; rank < size_; ++rank) {
    const int64_t* numbers = first + fields * rank;
    counts.samples.push_back(numbers[0]);
    counts.all_samples += numbers[0];
    counts.all_tokens += numbers[1];
    counts.most_samples = std::max(counts.most_samples, numbers[2]);
    counts.most_tokens_per_sample = std::max(counts.most_tokens_per_sample, numbers[3]);
    counts.way = rank == 0 ? numbers[6] : std::min(counts.way, numbers[6]);
    counts.awaits_decision = counts.awaits_decision || numbers[7] != 0;
    if (rank == 0) counts.takes_other_plan = numbers[8] != 0;
    if (numbers[4] == first[4] && numbers[5] == first[5]) continue;
    throw comm::CommError(fmt::format(
        "trainer: expected all ranks in the same step, got rank 0 in step {} of its trainer {} and "
        "rank {} in step {} of its trainer {}; a step failed or was left out on one of them alone, "
        "and nothing that they compute from here on belongs together",
        first[4], first[5], rank, numbers[4], numbers[5]));
  }
  counts_ = std::move(counts);
  return counts_;
}

LossSums RankStatistics::sum_losses(const at::Tensor& losses) {
  // A few numbers, while a GPU waits: a loop, not a dozen tensor operations.
  LossSums own;
  for (const double loss : to_doubles(losses)) {
    if (std::isfinite(loss)) {
      own.loss += loss;
      own.finite += 1;
    } else {
      own.not_finite += 1;
    }
  }
  if (alone()) return own;
  const at::Tensor sums = at::tensor({own.loss, own.finite, own.not_finite}, at::kDouble);
  host_->all_reduce(sums, "losses").wait();
  const double* all = sums.const_data_ptr<double>();
  return {all[0], all[1], all[2]};
}

bool RankStatistics::any(bool here) {
  if (alone()) return here;
  const at::Tensor flag = at::tensor({here ? 1 : 0}, at::kInt);
  host_->all_reduce(flag, "agreement", comm::Reduction::Max).wait();
  return flag.item<int>() != 0;
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

at::Tensor RankStatistics::of_all(const at::Tensor& own) const {
  if (alone()) return own.unsqueeze(0);
  const at::Tensor row = at::empty({own.numel() * size_}, own.options());
  host_->all_gather(row, own, "figures of ranks").wait();
  return row.view({size_, own.numel()});
}

at::Tensor RankStatistics::summed(const at::Tensor& tensor) {
  if (alone()) return tensor;
  const auto& samples = counts().samples;
  for (const int64_t other : samples) {
    MS_CHECK(other == samples[0],
             "trainer: norm_reduce = sum expects as many samples on every rank, got {} and {}",
             samples[0], other);
  }
  const at::Tensor sum = tensor.clone();
  device_->all_reduce(sum, "squared norms").wait();
  return sum;
}

}  // namespace moonshard::train
