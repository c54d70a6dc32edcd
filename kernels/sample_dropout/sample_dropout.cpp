#include "kernels/sample_dropout/sample_dropout.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/cuda_library.h"
#include "kernels/common/fused_tensors.h"
#include "kernels/sample_dropout/sample_dropout_cpu.h"
#include "kernels/sample_dropout/sample_dropout_launch.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

RawDropout raw_of(const at::Tensor& from, const at::Tensor& to, const DropoutCoins& coins,
                  bool adds) {
  RawDropout p;
  p.from = from.const_data_ptr();
  p.to = to.mutable_data_ptr();
  p.words = coins.words.const_data_ptr<int64_t>();
  p.samples = from.size(0);
  p.numbers = from.numel() / p.samples;
  p.stream = coins.stream;
  p.lowest = static_cast<int>(coins.dropped() - kCoinSides / 2);
  p.scale = at::scalar_tensor(coins.scale(), at::dtype(from.scalar_type())).item<double>();
  p.adds = adds;
  return p;
}

void check_words(const at::Tensor& x, const DropoutCoins& coins) {
  MS_ASSERT(coins.words.scalar_type() == at::kLong && coins.words.is_contiguous() &&
                coins.words.dim() == 1 && coins.words.size(0) == x.size(0) &&
                coins.words.device() == x.device(),
            "words {} for samples {}", c10::str(coins.words.sizes()), c10::str(x.sizes()));
}

// False where neither a kernel nor a loop runs.
bool drops(const at::Tensor& from, const at::Tensor& to, const DropoutCoins& coins, bool adds) {
  if (from.numel() == 0) return true;
  if (fused_kernel_runs("sample_dropout", from)) {
    RawDropout p = raw_of(from, to, coins, adds);
    p.format = number_format(from);
    cuda().launch_sample_dropout(p, stream_of(from));
    return true;
  }
  if (!from.is_cpu()) return false;
  return sample_dropout_cpu(raw_of(from, to, coins, adds), from.scalar_type());
}

}  // namespace

int64_t DropoutCoins::dropped() const {
  return std::max<int64_t>(1, std::lround(probability * kCoinSides));
}

double DropoutCoins::scale() const {
  return 1 / (1 - static_cast<double>(dropped()) / kCoinSides);
}

at::Tensor sample_dropout(const at::Tensor& x, const DropoutCoins& coins) {
  const at::NoGradGuard no_grad;
  check_words(x, coins);
  const at::Tensor plain_x = x.contiguous();
  at::Tensor result = at::empty_like(plain_x);
  return drops(plain_x, result, coins, false) ? result : sample_dropout_ref(plain_x, coins);
}

void add_sample_dropout(at::Tensor& sum, const at::Tensor& part, const DropoutCoins& coins) {
  const at::NoGradGuard no_grad;
  check_words(part, coins);
  MS_ASSERT(sum.is_contiguous() && part.is_contiguous() && sum.numel() == part.numel() &&
                sum.scalar_type() == part.scalar_type(),
            "{} is added to {}", c10::str(part.sizes()), c10::str(sum.sizes()));
  if (!drops(part, sum, coins, true)) add_sample_dropout_ref(sum, part, coins);
}

}  // namespace moonshard::kernels
