// Settings of the process's allocators, chosen once, before the first tensor on a GPU. Settings of
// the user's own (PYTORCH_ALLOC_CONF, PYTORCH_CUDA_ALLOC_CONF, MALLOC_*) are kept.
#pragma once

namespace moonshard {

/// LibTorch's allocator takes a GPU's memory as segments, and a tensor that fits into no hole of
/// them needs a new one: large tensors run out of memory that is free. Segments that grow, by pages
/// that the driver maps behind each other, have no such holes. Call when LibTorch's CUDA library is
/// there; without a driver that maps memory, segments stay as they are.
void let_segments_grow();

/// Whether they do: asks for settings, not for a GPU.
bool segments_grow();

}  // namespace moonshard
