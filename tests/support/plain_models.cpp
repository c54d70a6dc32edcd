#include "tests/support/plain_models.h"

#include <torch/csrc/autograd/autograd.h>

#include <fmt/format.h>

namespace moonshard {
namespace {

at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x / (x.square().mean(-1, true) + eps).sqrt() * weight;
}

// base^(-2i/d), stretched as Llama 3.1 says: by wavelength, in three cases.
double plain_frequency(const models::ModelOptions& o, int64_t i) {
  const double frequency =
      std::pow(o.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(o.head_dim));
  if (o.rope_scaling == "none") return frequency;
  const double wavelength = 2 * std::acos(-1.0) / frequency;
  const double original = static_cast<double>(o.rope_original_length);
  if (wavelength < original / o.rope_high_freq_factor) return frequency;
  if (wavelength > original / o.rope_low_freq_factor) return frequency / o.rope_factor;
  const double share = (original / wavelength - o.rope_low_freq_factor) /
                       (o.rope_high_freq_factor - o.rope_low_freq_factor);
  return (1 - share) * frequency / o.rope_factor + share * frequency;
}

// Rotates pairs (i, i + d/2) of each head by position times frequency, one position at a time.
at::Tensor plain_rotary(const models::ModelOptions& o, const at::Tensor& x_BHTd) {
  const int64_t T = x_BHTd.size(2), d = x_BHTd.size(3), half = d / 2;
  std::vector<at::Tensor> positions;
  for (int64_t t = 0; t < T; ++t) {
    std::vector<at::Tensor> first, second;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t) * plain_frequency(o, i);
      const at::Tensor a = x_BHTd.select(2, t).select(2, i),
                       b = x_BHTd.select(2, t).select(2, i + half);
      first.push_back(a * std::cos(angle) - b * std::sin(angle));
      second.push_back(b * std::cos(angle) + a * std::sin(angle));
    }
    first.insert(first.end(), second.begin(), second.end());
    positions.push_back(at::stack(first, -1));
  }
  return at::stack(positions, 2);
}

at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t repeat = q.size(1) / k.size(1), T = q.size(2);
  const at::Tensor keys = k.repeat_interleave(repeat, 1), values = v.repeat_interleave(repeat, 1);
  at::Tensor scores =
      at::matmul(q, keys.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor future = at::ones({T, T}, at::kBool).triu(1);
  scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), values);
}

at::Tensor plain_decoder(const models::ModelOptions& o, const Leaves& w, const Batch& batch) {
  const int64_t B = batch.input_ids.size(0), T = batch.input_ids.size(1), d = o.head_dim;
  const auto apply = [&w](const at::Tensor& x, const std::string& name) {
    const at::Tensor y = at::matmul(x, w.at(name + ".weight").t());
    const auto bias = w.find(name + ".bias");
    return bias == w.end() ? y : y + bias->second;
  };
  at::Tensor x = w.at("model.embed_tokens.weight").index({batch.input_ids});
  for (int64_t i = 0; i < o.num_layers; ++i) {
    const std::string at_layer = fmt::format("model.layers.{}.", i);
    const auto heads = [&](const at::Tensor& y, int64_t count) {
      return y.reshape({B, T, count, d}).permute({0, 2, 1, 3});
    };
    const at::Tensor h = plain_norm(x, w.at(at_layer + "input_layernorm.weight"), o.norm_eps);
    const at::Tensor q =
        plain_rotary(o, heads(apply(h, at_layer + "self_attn.q_proj"), o.num_heads));
    const at::Tensor k =
        plain_rotary(o, heads(apply(h, at_layer + "self_attn.k_proj"), o.num_kv_heads));
    const at::Tensor v = heads(apply(h, at_layer + "self_attn.v_proj"), o.num_kv_heads);
    x = x + apply(plain_attention(q, k, v).permute({0, 2, 1, 3}).reshape({B, T, o.num_heads * d}),
                  at_layer + "self_attn.o_proj");
    const at::Tensor m =
        plain_norm(x, w.at(at_layer + "post_attention_layernorm.weight"), o.norm_eps);
    const at::Tensor gate = apply(m, at_layer + "mlp.gate_proj");
    x = x + apply(gate * at::sigmoid(gate) * apply(m, at_layer + "mlp.up_proj"),
                  at_layer + "mlp.down_proj");
  }
  x = plain_norm(x, w.at("model.norm.weight"), o.norm_eps);
  if (o.task == "lm") {
    std::vector<at::Tensor> losses;
    const std::string head = o.tie_embeddings == "yes" ? "model.embed_tokens" : "lm_head";
    const at::Tensor log_p = at::log_softmax(apply(x, head), -1);
    for (int64_t b = 0; b < B; ++b) {
      at::Tensor sum = at::zeros({}, x.options());
      int64_t counted = 0;
      for (int64_t t = 0; t < T; ++t) {
        const int64_t label = batch.labels[b][t].item<int64_t>();
        if (label < 0) continue;
        sum = sum - log_p[b][t][label];
        ++counted;
      }
      losses.push_back(sum / std::max<int64_t>(counted, 1));
    }
    return at::stack(losses);
  }
  std::vector<at::Tensor> losses;
  for (int64_t b = 0; b < B; ++b) {
    const int64_t last = batch.attention_mask[b].sum().item<int64_t>() - 1;
    const at::Tensor log_p = at::log_softmax(at::matmul(w.at("score.weight"), x[b][last]), -1);
    losses.push_back(-log_p[batch.labels[b].item<int64_t>()]);
  }
  return at::stack(losses);
}

at::Tensor plain_linear(const models::ModelOptions& o, const Leaves& w, const Batch& batch) {
  at::Tensor x = batch.inputs;
  for (int64_t i = 0; i < o.num_layers; ++i) {
    x = at::matmul(x, w.at(fmt::format("layers.{}.weight", i)).t()) +
        w.at(fmt::format("layers.{}.bias", i));
  }
  return (x - batch.targets).square().mean(-1);
}

}  // namespace

Leaves leaves_of(const models::Model& model) {
  Leaves leaves;
  for (const auto& parameter : model.parameters())
    leaves[parameter->name] = parameter->value.clone().set_requires_grad(true);
  return leaves;
}

at::Tensor plain_losses(const models::ModelOptions& options, const Leaves& leaves,
                        const Batch& batch) {
  const at::AutoGradMode enable(true);
  if (options.task == "denoise") throw std::logic_error("no textbook DiT: see tests/golden");
  return options.task == "regress" ? plain_linear(options, leaves, batch)
                                   : plain_decoder(options, leaves, batch);
}

Batch sample_of(const Batch& batch, int64_t b) {
  return batch.slice(b, 1);
}

std::map<std::string, at::Tensor> per_sample_reference(const models::Model& model,
                                                       const Batch& batch) {
  std::map<std::string, std::vector<at::Tensor>> rows;
  for (int64_t b = 0; b < batch.size(); ++b) {
    const Leaves leaves = leaves_of(model);
    std::vector<at::Tensor> inputs;
    for (const auto& [name, leaf] : leaves) inputs.push_back(leaf);
    const at::Tensor loss = plain_losses(model.options(), leaves, sample_of(batch, b)).sum();
    const auto gradients = torch::autograd::grad({loss}, inputs);
    size_t i = 0;
    for (const auto& [name, leaf] : leaves) rows[name].push_back(gradients[i++]);
  }
  std::map<std::string, at::Tensor> result;
  for (const auto& [name, gradients] : rows) result[name] = at::stack(gradients);
  return result;
}

}  // namespace moonshard
