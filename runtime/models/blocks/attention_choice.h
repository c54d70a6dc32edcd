// Which of LibTorch's fused attention kernels runs on a GPU in 16-bit dtypes: its own flash kernel
// or cuDNN's. Neither is faster everywhere, so each shape is timed once, forward and backward, and
// the faster one is remembered (core/tuning.h). Shape letters as in attention.h.
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace moonshard::models {

enum class AttentionKernel { Flash, Cudnn };

/// "flash" or "cudnn".
const char* attention_kernel_name(AttentionKernel kernel);

/// Whether both kernels support such tensors: on a GPU, bfloat16 or half, d a multiple of 8 up to
/// 128.
bool attention_has_choice(const at::Tensor& q, const at::Tensor& k);

/// "attention: B 2 Hq 32 Hkv 8 T 1024 d 128 causal bfloat16".
std::string attention_key(const at::Tensor& q, const at::Tensor& k, bool causal);

/// The kernel for tensors such as these: what was set, else what is remembered, else what is faster
/// now. cuDNN is taken only where its results agree with flash's. With deterministic algorithms
/// always flash: a choice by timing would differ from run to run.
AttentionKernel attention_kernel(const at::Tensor& q, const at::Tensor& k, bool causal);

/// For this process only: overrides what is remembered and is not stored.
void set_attention_choice(const std::string& key, AttentionKernel kernel);
/// Key to name of every choice that this process has made or been given.
std::map<std::string, std::string> attention_choices();

/// Attention by that kernel. q [B, Hq, T, d], k and v [B, Hkv, T, d], strided as they are.
at::Tensor run_attention(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, bool causal);

}  // namespace moonshard::models
