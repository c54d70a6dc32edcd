#include "runtime/train/global_norm.h"

#include <cmath>

#include <ATen/ATen.h>

#include "runtime/sharding/settle_rows.h"

namespace moonshard::train {

double global_norm(const sharding::Parallel& parallel, comm::World& world, bool spread) {
  const at::NoGradGuard no_grad;
  at::Tensor squares;  // on the device: one wait for all
  for (const auto& part : parallel.updated()) {
    sharding::settle_rows(*part);
    if (!part->grad.defined() || part->grad.numel() == 0) continue;
    const at::Tensor own = at::linalg_vector_norm(part->grad, 2, {}, false, at::kDouble).square();
    squares = squares.defined() ? squares.add_(own.to(squares.device())) : own.clone();
  }
  at::Tensor sum =
      squares.defined() ? squares.to(at::kCPU).reshape({1}) : at::zeros({1}, at::kDouble);
  if (spread && world.size() > 1)
    world.group("statistics", c10::kCPU)->all_reduce(sum, "gradient norm").wait();
  const auto copies = static_cast<double>(spread ? parallel.copies_of_parts() : 1);
  return std::sqrt(sum.item<double>() / copies);
}

}  // namespace moonshard::train
