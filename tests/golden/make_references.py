#!/usr/bin/env python3
"""Makes the reference models of this folder: tiny, float64, from PyTorch and transformers.

Each <name>/ gets config.json, model.safetensors (weights) and reference.safetensors (a batch, the
outputs, one loss per sample, and "grad.<parameter>" of the SUM of these losses). tests/parity loads
them and holds the runtime to them. The files are committed; run this only to change a case:

    python3 -m venv refs && refs/bin/pip install torch==2.11.0 transformers==4.57.1 safetensors numpy
    refs/bin/python tests/golden/make_references.py [NAME ...]

The gemma cases were made with transformers 5.22.0, which writes both rotary bases into one object. Without names all cases are made again. The same versions on the same machine give the same bytes.

Decoders are transformers' own classes. They compute norms and rotary angles in float32 whatever the
model's format; wide_arithmetic() lifts just that to float64, and every case checks that the lifted
and the untouched class agree within float32's rounding. DiT is written below from the structure in
Peebles and Xie, "Scalable Diffusion Models with Transformers" (2023).
"""
import contextlib
import json
import math
import pathlib
import sys
import zlib

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from torch import nn
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.vaultgemma import modeling_vaultgemma
from transformers import modeling_rope_utils

HERE = pathlib.Path(__file__).resolve().parent
IGNORED = -100


# ---- shared -------------------------------------------------------------------------------------

def generator_of(name):
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def randomise(model, case, size=1.0):
    """Every parameter away from zero and from one: a zero gate would hide the gradients behind it. `size` keeps a
    model so well conditioned that float32 gives its gradients to 1e-5."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator_of(f"{case}/{name}"), dtype=torch.float64)
        is_norm_weight = "norm" in name and name.endswith("weight") and "gemma" not in case
        std = 0.2 if parameter.dim() == 1 else min(0.5, 1.0 / math.sqrt(parameter[0].numel()) + 0.1)
        parameter.data = noise * std * size + (1.0 if is_norm_weight else 0.0)


def store(case, config, model, tensors):
    folder = HERE / case
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    weights = {name: p.detach().contiguous() for name, p in model.named_parameters()}
    gradients = {f"grad.{name}": p.grad.contiguous() for name, p in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({**tensors, **gradients}, folder / "reference.safetensors")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{case}: {sum(w.numel() for w in weights.values())} parameters, "
          f"losses {[round(x, 4) for x in tensors['losses'].tolist()]}, {size / 1024:.0f} KiB")


# ---- decoders: transformers' classes ------------------------------------------------------------

class WideTorch:
    """The torch module with float64 under the name of float32."""
    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def wide_arithmetic():
    modules = (modeling_llama, modeling_qwen2, modeling_gemma2, modeling_gemma3, modeling_vaultgemma, modeling_rope_utils)
    narrow_float = torch.Tensor.float
    for module in modules:
        module.torch = WideTorch()
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.Tensor.float = narrow_float
        for module in modules:
            module.torch = torch


# What published config.json files of these families hold, less what only generation uses.
CONFIG_KEYS = {
    "architectures", "attention_bias", "attention_dropout", "bos_token_id", "eos_token_id", "head_dim", "hidden_act",
    "hidden_size", "initializer_range", "intermediate_size", "max_position_embeddings", "mlp_bias", "model_type",
    "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "pad_token_id", "rms_norm_eps", "rope_scaling",
    "rope_theta", "sliding_window", "tie_word_embeddings", "use_cache", "use_sliding_window", "vocab_size",
    "attn_logit_softcapping", "final_logit_softcapping", "hidden_activation", "layer_types", "query_pre_attn_scalar",
    "rope_parameters", "use_bidirectional_attention"}


def decoder_batch(case, vocab, lengths, pad, labels_of):
    generator = generator_of(f"{case}/batch")
    B, T = len(lengths), max(lengths)
    ids = torch.randint(3, vocab, (B, T), generator=generator)
    mask = torch.arange(T)[None, :] < torch.tensor(lengths)[:, None]
    if pad is not None:
        ids[0, 2] = pad  # the padding token inside of a text: read, but its row learns nothing
        ids = torch.where(mask, ids, pad)
    if labels_of == "classify":
        return ids, mask, torch.randint(0, 3, (B,), generator=generator)
    labels = torch.full_like(ids, IGNORED)
    labels[:, :-1] = torch.where(mask[:, 1:], ids[:, 1:], IGNORED)
    return ids, mask, labels


def decoder_losses(logits, labels):
    if labels.dim() == 1:
        return F.cross_entropy(logits, labels, reduction="none")
    tokens = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=IGNORED)
    return tokens.sum(-1) / labels.ne(IGNORED).sum(-1)


def make_decoder(case, model_class, config, lengths, attention="sdpa"):
    task = "lm" if "CausalLM" in model_class.__name__ else "classify"
    config.architectures = [model_class.__name__]
    ids, mask, labels = decoder_batch(case, config.vocab_size, lengths, config.pad_token_id, task)

    def build():
        model = model_class._from_config(config, attn_implementation=attention).double().eval()
        randomise(model, case)
        return model

    with wide_arithmetic():
        model = build()
        logits = model(input_ids=ids, attention_mask=mask.long()).logits
    assert logits.dtype == torch.float64
    with torch.no_grad():
        narrow = build()(input_ids=ids, attention_mask=mask.long()).logits
    lifted_by = ((narrow - logits).norm() / logits.norm()).item()
    assert 0 < lifted_by < 1e-5, f"{case}: wide_arithmetic changed more than rounding: {lifted_by}"

    losses = decoder_losses(logits, labels)
    losses.sum().backward()
    stored = {key: value for key, value in config.to_dict().items() if key in CONFIG_KEYS}
    if task == "classify":
        stored["id2label"] = {str(i): f"LABEL_{i}" for i in range(config.num_labels)}
    store(case, stored, model, {"input_ids": ids, "attention_mask": mask, "labels": labels,
                                "logits": logits.detach(), "losses": losses.detach()})


def llama_config(**changes):
    sizes = dict(vocab_size=24, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
                 max_position_embeddings=1024, bos_token_id=1, eos_token_id=2)
    return transformers.LlamaConfig(**{**sizes, **changes})


def qwen_config(**changes):
    sizes = dict(vocab_size=24, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-6, rope_theta=1e6,
                 max_position_embeddings=1024, bos_token_id=1, eos_token_id=2)
    return transformers.Qwen2Config(**{**sizes, **changes})


def llama31_classify(case):
    # Wavelengths 6.3, 63, 628, 6283 against 64 / 4 and 64 / 1: one kept, one blended, two divided.
    scaling = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)
    config = llama_config(head_dim=8, rope_theta=10000.0, rope_scaling=scaling, pad_token_id=2,
                          num_labels=3)
    make_decoder(case, transformers.LlamaForSequenceClassification, config, [11, 7, 4])


def llama32_lm_tied(case):
    scaling = dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)
    config = llama_config(rope_theta=500000.0, rope_scaling=scaling, tie_word_embeddings=True)
    make_decoder(case, transformers.LlamaForCausalLM, config, [9, 9])


def qwen15_lm(case):
    make_decoder(case, transformers.Qwen2ForCausalLM, qwen_config(tie_word_embeddings=False), [9, 9])


def qwen25_lm_tied(case):
    config = qwen_config(num_key_value_heads=2, tie_word_embeddings=True, pad_token_id=2)
    make_decoder(case, transformers.Qwen2ForCausalLM, config, [9, 6])


# Windows of 4 tokens in texts of 9 to 13: most tokens see less than all. Texts are so long that even the last padding sees a
# real token: transformers gives no numbers for a row that sees none.

def gemma_sizes(**changes):
    return {**dict(vocab_size=24, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4,
                   num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=6, sliding_window=4,
                   max_position_embeddings=64, pad_token_id=0, bos_token_id=2, eos_token_id=1), **changes}


def gemma2_lm(case):
    config = transformers.Gemma2Config(**gemma_sizes(attn_logit_softcapping=3.0, final_logit_softcapping=4.0))
    make_decoder(case, transformers.Gemma2ForCausalLM, config, [9, 6], attention="eager")


def gemma2_classify(case):
    config = transformers.Gemma2Config(**gemma_sizes(attn_logit_softcapping=3.0, num_labels=3))
    make_decoder(case, transformers.Gemma2ForSequenceClassification, config, [9, 7, 6], attention="eager")


def gemma3_lm(case):
    rope = {"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}
    config = transformers.Gemma3TextConfig(**gemma_sizes(
        rope_parameters=rope, layer_types=["sliding_attention", "sliding_attention", "full_attention"]))
    make_decoder(case, transformers.Gemma3ForCausalLM, config, [13, 10])


def vaultgemma_lm(case):
    config = transformers.VaultGemmaConfig(**gemma_sizes(
        attn_logit_softcapping=3.0, final_logit_softcapping=4.0, num_key_value_heads=1,
        query_pre_attn_scalar=8, layer_types=["full_attention"] * 3))
    make_decoder(case, transformers.VaultGemmaForCausalLM, config, [9, 9], attention="eager")


# ---- DiT ----------------------------------------------------------------------------------------

def sincos_positions(side, width):
    """[1, side * side, width]: the first half of the width tells the column, the second the row;
    each half is sines, then cosines, of position / 10000^(i / (width / 4))."""
    frequencies = 10000.0 ** (-torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    parts = []
    for position in (columns, rows):
        angles = position.reshape(-1, 1) * frequencies
        parts += [angles.sin(), angles.cos()]
    return torch.cat(parts, -1)[None]


class PatchEmbed(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.proj = nn.Conv2d(c["in_channels"], c["hidden_size"], c["patch_size"], c["patch_size"])

    def forward(self, images):
        return self.proj(images).flatten(2).transpose(1, 2)


class TimestepEmbedder(nn.Module):
    def __init__(self, width, frequencies=256):
        super().__init__()
        self.half = frequencies // 2
        self.mlp = nn.Sequential(nn.Linear(frequencies, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t):
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(self.half, dtype=torch.float64) / self.half)
        angles = t[:, None].double() * frequencies
        return self.mlp(torch.cat([angles.cos(), angles.sin()], -1))


class LabelEmbedder(nn.Module):
    def __init__(self, classes, width):
        super().__init__()
        self.embedding_table = nn.Embedding(classes + 1, width)

    def forward(self, y):
        return self.embedding_table(y)


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).reshape(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(D // self.heads), -1)
        return self.proj((weights @ v).transpose(1, 2).reshape(B, T, D))


class Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.fc1 = nn.Linear(width, inner)
        self.fc2 = nn.Linear(inner, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


def modulate(x, shift, scale):
    return x * (1 + scale[:, None]) + shift[:, None]


class DitBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        D, affine = c["hidden_size"], c["norm_affine"]
        self.norm1 = nn.LayerNorm(D, eps=c["layer_norm_eps"], elementwise_affine=affine)
        self.attn = SelfAttention(D, c["num_attention_heads"])
        self.norm2 = nn.LayerNorm(D, eps=c["layer_norm_eps"], elementwise_affine=affine)
        self.mlp = Mlp(D, c["intermediate_size"])
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(D, 6 * D))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c).chunk(6, -1)
        x = x + gate1[:, None] * self.attn(modulate(self.norm1(x), shift1, scale1))
        return x + gate2[:, None] * self.mlp(modulate(self.norm2(x), shift2, scale2))


class FinalLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        D = c["hidden_size"]
        self.norm_final = nn.LayerNorm(D, eps=c["layer_norm_eps"], elementwise_affine=c["norm_affine"])
        self.linear = nn.Linear(D, c["patch_size"] ** 2 * c["in_channels"])
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(D, 2 * D))

    def forward(self, x, c):
        shift, scale = self.adaLN_modulation(c).chunk(2, -1)
        return self.linear(modulate(self.norm_final(x), shift, scale))


class Dit(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        D, side = c["hidden_size"], c["image_size"] // c["patch_size"]
        self.x_embedder = PatchEmbed(c)
        if c["positions"] == "learned":
            self.pos_embed = nn.Parameter(torch.zeros(1, side * side, D))
        else:
            self.register_buffer("pos_embed", sincos_positions(side, D), persistent=False)
        self.t_embedder = TimestepEmbedder(D)
        self.y_embedder = LabelEmbedder(c["num_classes"], D)
        self.blocks = nn.ModuleList(DitBlock(c) for _ in range(c["num_hidden_layers"]))
        self.final_layer = FinalLayer(c)

    def forward(self, images, t, y):
        x = self.x_embedder(images) + self.pos_embed
        c = self.t_embedder(t) + self.y_embedder(y)
        for block in self.blocks:
            x = block(x, c)
        x = self.final_layer(x, c)
        side, p, channels = self.c["image_size"] // self.c["patch_size"], self.c["patch_size"], self.c["in_channels"]
        x = x.reshape(-1, side, side, p, p, channels).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(-1, channels, side * p, side * p)


def make_dit(case, **sizes):
    config = dict(model_type="dit", layer_norm_eps=1e-6, num_hidden_layers=2, num_classes=5, label_dropout=0.1, **sizes)
    model = Dit(config).double()
    randomise(model, case, size=0.6)
    generator = generator_of(f"{case}/batch")
    shape = (3, config["in_channels"], config["image_size"], config["image_size"])
    images = torch.randn(shape, generator=generator, dtype=torch.float64)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    t = torch.tensor([0, 417, 999])
    y = torch.tensor([3, 0, config["num_classes"]])  # the last is the null class
    output = model(images, t, y)
    losses = (output - noise).square().flatten(1).mean(-1)
    losses.sum().backward()
    store(case, config, model, {"inputs": images, "targets": noise, "timesteps": t, "labels": y,
                                "logits": output.detach(), "losses": losses.detach()})


def dit_latent(case):
    make_dit(case, image_size=6, patch_size=2, in_channels=4, hidden_size=8, intermediate_size=32,
             num_attention_heads=2, positions="sincos", norm_affine=False)


def dit_pixel(case):
    make_dit(case, image_size=8, patch_size=4, in_channels=3, hidden_size=8, intermediate_size=24,
             num_attention_heads=2, positions="learned", norm_affine=True)


CASES = {f.__name__: f for f in (llama31_classify, llama32_lm_tied, qwen15_lm, qwen25_lm_tied, gemma2_lm, gemma2_classify,
                                gemma3_lm, vaultgemma_lm, dit_latent, dit_pixel)}


def main():
    names = sys.argv[1:] or list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.exit(f"expected cases among {', '.join(CASES)}, got {', '.join(unknown)}")
    torch.set_num_threads(1)
    for name in names:
        CASES[name](name)


if __name__ == "__main__":
    main()
