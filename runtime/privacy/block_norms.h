// Norms and sums of the linear layers of one block together: on a GPU a launch per layer would
// leave half of it idle, and layers that share their input (q, k and v; gate and up) share its Gram
// matrix. Which layers may join is checked first; the others go through their rules one by one.
#pragma once

#include <string>
#include <vector>

#include "kernels/flash_norm/flash_norm.h"
#include "runtime/privacy/layer_rules.h"

namespace moonshard::privacy {

/// What is kept of a layer until the factors are known.
enum class Keep {
  Nothing,   ///< the sum comes from a second backward pass
  Inputs,    ///< (a, g)
  Gradients  ///< each sample's gradient
};

/// A linear layer to be processed in a common launch.
struct LinearTask {
  const models::ParamLayer* layer = nullptr;
  at::Tensor a_BTi, g_BTo;
  NormMethod method = NormMethod::Width;
  Keep keep = Keep::Nothing;     ///< Gradients: in 16 bits
  bool rows_if_smaller = false;  ///< keep may become Gradients: see keep_the_smaller
};

/// At most so many in one launch: kernels take their tables as parameters, which are limited.
inline constexpr size_t kMostTasks = 12;

/// Kernels replace the layer's rule: a linear layer in bfloat16 on a GPU since Ampere; with one
/// position per sample (a head, a modulation) also in float32 and of any width.
bool may_join(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g);

/// Gradients can be kept in 16 bits where the tensor lies: the Hopper kernel writes them.
bool keeps_compact(const at::Tensor& like);
/// The same for a layer: its gradients have whole units, too (flash_norm.h).
bool keeps_compact_rows(const at::Tensor& a, const at::Tensor& g);

/// Of tasks that ask for it: Gradients where these are fewer bytes than (a, g), Inputs elsewhere.
/// Tasks that read the same input keep it once.
void keep_the_smaller(std::vector<LinearTask>& tasks);

struct TaskNorms {
  at::Tensor squares_nB;                    ///< of the weights' gradients, double; never too small
  std::vector<kernels::KeptGradient> kept;  ///< of tasks that keep Gradients; else undefined
  at::Tensor units;                         ///< theirs, as columns of one tensor [B, n]
};
TaskNorms norms_of(const std::vector<LinearTask>& tasks);

/// Adds each task's sum over samples of factor x gradient to its weight's grad. Each weight once.
void add_clipped(const std::vector<LinearTask>& tasks, const at::Tensor& factors);

/// Name of a common launch in timings: "model.layers.3" for layers of a block.
std::string common_name(const std::vector<LinearTask>& tasks);

}  // namespace moonshard::privacy
