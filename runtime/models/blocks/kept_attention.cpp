#include "runtime/models/blocks/kept_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/base/check.h"

namespace moonshard::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local KeptAttention::Scope* current_scope = nullptr;

enum class Backend { Flash, Window, Cudnn, Cpu };

Backend backend_of(const at::Tensor& q, const at::Tensor& k, bool causal, int64_t window) {
  if (!q.is_cuda()) return Backend::Cpu;
  if (window > 0) return Backend::Window;
  return attention_has_choice(q, k) && attention_kernel(q, k, causal) == AttentionKernel::Cudnn
             ? Backend::Cudnn
             : Backend::Flash;
}

AttentionResult run(Backend backend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    bool causal, int64_t window) {
  AttentionResult result;
  if (backend == Backend::Window) {
    std::tie(result.out, result.log_sums, result.seed, result.offset) =
        window_attention(q, k, v, window);
    result.most_q = q.size(2);
    result.most_k = k.size(2);
    return result;
  }
  if (backend == Backend::Cpu) {
    std::tie(result.out, result.log_sums) =
        at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal);
    return result;
  }
  auto found = backend == Backend::Flash
                   ? at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
                   : at::_scaled_dot_product_cudnn_attention(
                         q, k, v, std::nullopt, /*compute_log_sumexp=*/true, 0.0, causal);
  result.out = std::get<0>(found);
  result.log_sums = std::get<1>(found);
  result.first_q = std::get<2>(found);
  result.first_k = std::get<3>(found);
  result.most_q = std::get<4>(found).expect_int();
  result.most_k = std::get<5>(found).expect_int();
  result.seed = std::get<6>(found);
  result.offset = std::get<7>(found);
  return result;
}

// The output as it was kept, with the kernel's own backward.
struct KeptAttentionFunction : torch::autograd::Function<KeptAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionResult& kept, bool causal,
                            int64_t window, int64_t backend) {
    context->save_for_backward(
        {q, k, v, kept.out, kept.log_sums, kept.seed, kept.offset, kept.first_q, kept.first_k});
    context->saved_data["most_q"] = kept.most_q;
    context->saved_data["most_k"] = kept.most_k;
    context->saved_data["causal"] = causal;
    context->saved_data["window"] = window;
    context->saved_data["backend"] = backend;
    return kept.out.detach();
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3];
    const int64_t most_q = context->saved_data["most_q"].toInt();
    const int64_t most_k = context->saved_data["most_k"].toInt();
    const bool causal = context->saved_data["causal"].toBool();
    const auto backend = static_cast<Backend>(context->saved_data["backend"].toInt());
    std::tuple<at::Tensor, at::Tensor, at::Tensor> found;
    if (backend == Backend::Cpu) {
      found = at::_scaled_dot_product_flash_attention_for_cpu_backward(gradients[0], q, k, v, out,
                                                                       saved[4], 0.0, causal);
    } else if (backend == Backend::Window) {
      found = window_backward(gradients[0], saved, context->saved_data["window"].toInt());
    } else if (backend == Backend::Flash) {
      found = at::_scaled_dot_product_flash_attention_backward(gradients[0], q, k, v, out, saved[4],
                                                               saved[7], saved[8], most_q, most_k,
                                                               0.0, causal, saved[5], saved[6]);
    } else {
      found = at::_scaled_dot_product_cudnn_attention_backward(
          gradients[0], q, k, v, out, saved[4], saved[5], saved[6], /*attn_bias=*/{}, saved[7],
          saved[8], most_q, most_k, 0.0, causal);
    }
    return {std::get<0>(found), std::get<1>(found), std::get<2>(found), at::Tensor(),
            at::Tensor(),       at::Tensor(),       at::Tensor()};
  }

  static std::tuple<at::Tensor, at::Tensor, at::Tensor> window_backward(const at::Tensor& gradient,
                                                                        const variable_list& saved,
                                                                        int64_t window) {
    const auto turned = [](const at::Tensor& x) { return x.transpose(1, 2); };
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3];
    const auto [q_grad, k_grad, v_grad] = at::_flash_attention_backward(
        turned(gradient), turned(q), turned(k), turned(v), turned(out), saved[4], {}, {}, q.size(2),
        k.size(2), /*dropout_p=*/0.0, /*is_causal=*/true, saved[5], saved[6], std::nullopt,
        /*window_size_left=*/window - 1, /*window_size_right=*/0);
    return {turned(q_grad), turned(k_grad), turned(v_grad)};
  }
};

}  // namespace

KeptAttention::Scope::Scope(KeptAttention& results, bool records)
    : results_(results), records_(records), outer_(current_scope) {
  current_scope = this;
}

KeptAttention::Scope::~Scope() {
  current_scope = outer_;
}

bool keeps_attention(const at::Tensor& q, const at::Tensor& k) {
  if (current_scope == nullptr) return false;
  return has_flash_kernel(q, q.size(3)) || (q.is_cpu() && q.size(1) == k.size(1));
}

at::Tensor kept_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          bool causal, int64_t window) {
  KeptAttention::Scope& scope = *current_scope;
  std::vector<AttentionResult>& results = scope.results_.results_;
  const Backend backend = backend_of(q, k, causal, window);
  if (scope.records_) {
    results.push_back(run(backend, q, k, v, causal, window));
    return results.back().out;
  }
  MS_ASSERT(scope.next_ < results.size(), "a block runs again with another attention");
  return KeptAttentionFunction::apply(q, k, v, results[scope.next_++], causal, window,
                                      static_cast<int64_t>(backend));
}

}  // namespace moonshard::models
