// Launchers of embedding_norm, without ATen.
#pragma once

#include <cstdint>

namespace moonshard::kernels {

/// g [samples, tokens, width] on the device; strides in elements, the last is 1.
struct EmbeddingRows {
  const void* data = nullptr;
  bool is_bfloat16 = false;  ///< else float32
  int64_t samples = 0, tokens = 0, width = 0, token_stride = 0, sample_stride = 0;
};

/// Scratch for launch_embedding_norm. Nothing in it needs to be set before.
int64_t embedding_norm_workspace_bytes(const EmbeddingRows& g);

/// squares [samples]. Each sample's ids are sorted separately: ids and order [samples, tokens],
/// order[b, p] the position within the sample that ids[b, p] came from.
void launch_embedding_norm(const int64_t* ids, const int64_t* order, const EmbeddingRows& g,
                           int64_t padding_id, double* squares, void* workspace, void* stream);

/// out [ids, width] += ... The ids of all samples are sorted together: ids and order [samples *
/// tokens], order[p] = sample * tokens + position. factors [samples] or null.
void launch_embedding_sum(const int64_t* ids, const int64_t* order, const EmbeddingRows& g,
                          const double* factors, int64_t padding_id, float* out, int64_t out_stride,
                          void* stream);

}  // namespace moonshard::kernels
