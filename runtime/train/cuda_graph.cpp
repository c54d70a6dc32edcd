#include "runtime/train/cuda_graph.h"

#include "runtime/base/plugin.h"

namespace moonshard::train {

// Graphs with memory of LibTorch's CUDA allocator need its CUDA library when they are linked.
const GraphPlugin& graph_plugin() {
  static const GraphPlugin instance = [] {
    static const Plugin library("moonshard_torch_cuda");
    GraphPlugin found;
    found.absence = library.absence();
    found.make = library.function<MakeCudaGraph>("moonshard_make_cuda_graph");
    found.history_is_recorded = library.function<bool()>("moonshard_memory_is_recorded");
    if (found.absence.empty() && (found.make == nullptr || found.history_is_recorded == nullptr))
      found.absence = library.path() + " is of another version; build it again";
    return found;
  }();
  return instance;
}

}  // namespace moonshard::train
