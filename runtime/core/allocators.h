// Settings of LibTorch's allocators for GPUs and pinned memory, chosen before the first tensor on a
// GPU. Who sets PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF decides about pinned memory; about
// segments, who has expandable_segments in it.
#pragma once

namespace moonshard {

/// LibTorch's allocator takes a GPU's memory as segments, and a tensor that fits into no hole of
/// them needs a new one: large tensors run out of memory that is free. Segments that grow, by pages
/// that the driver maps behind each other, have no such holes. Call when LibTorch's CUDA library is
/// there; without a driver that maps memory, segments stay as they are. NCCL is told not to
/// register buffers of CUDA graphs (NCCL_GRAPH_REGISTER), which it takes for single allocations.
void let_segments_grow();

/// Whether they do: asks for settings, not for a GPU.
bool segments_grow();

}  // namespace moonshard
