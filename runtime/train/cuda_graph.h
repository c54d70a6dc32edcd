// A CUDA graph, as the plugin hands it out (step_graph_plugin.cpp), which is linked to LibTorch's
// CUDA library.
#pragma once

#include <string>

namespace moonshard::train {

class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  /// From here to end() whatever this thread and the backward passes it starts put on the current
  /// stream is recorded, not run. Tensors that are made meanwhile live in memory of the graph.
  /// Waits for the device and gives cached memory back first. Throws where capturing cannot begin.
  virtual void begin() = 0;
  /// Always after a begin() that returned, also when the work failed, on the same thread. "" when
  /// the graph can be launched, else why not.
  virtual std::string end() = 0;
  /// On the current stream.
  virtual void launch() = 0;
};

using MakeCudaGraph = CudaGraph*(int device);

/// What the plugin has, loaded at the first call.
struct GraphPlugin {
  MakeCudaGraph* make = nullptr;
  bool (*history_is_recorded)() = nullptr;
  std::string absence;  ///< why it cannot be used; empty when it can
};
const GraphPlugin& graph_plugin();

}  // namespace moonshard::train
