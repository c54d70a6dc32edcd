#include "kernels/common/host_threads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <algorithm>
#include <atomic>

namespace moonshard::kernels {

// at::parallel_for is a template that starts threads only where it is compiled with OpenMP, whose
// runtime would then be a second one beside LibTorch's. An iteration over a tensor runs on
// LibTorch's own threads: here each element stands for a thread.
void share_pieces(int64_t pieces, const std::function<void(int64_t piece)>& work) {
  std::atomic<int64_t> next{0};
  const auto take = [&] {
    for (int64_t piece = next++; piece < pieces; piece = next++) work(piece);
  };
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), pieces);
  if (threads <= 1 || at::in_parallel_region()) return take();
  at::Tensor places = at::empty({threads}, at::kByte);
  at::TensorIterator::nullary_op(places).for_each(
      [&](char**, const int64_t*, int64_t, int64_t) { take(); }, /*grain_size=*/1);
}

}  // namespace moonshard::kernels
