"""PyTorch's plain (non-private) step for the works of works.lua: what users of FSDP2 and torch.compile have today.
Usage: torch_peer.py FAMILY TOKENS BATCH LAYERS eager|compile|offload [ITERS]. Prints one line: RESULT {json}.
llama, llama1b: sequence classification; llama-lm, llama1b-lm, llama-lora, qwen, qwen2.5: language modelling. float32 master weights,
bfloat16 compute, float32 reduce, FSDP2 with a unit per block (offload: its CPUOffloadPolicy); qwen: bfloat16 weights, compile as one
graph without FSDP; llama-lora: rank 16 on all linear layers of the blocks, all in bfloat16, base frozen, blocks compiled, without FSDP.
SGD for the 8B shapes and with offload, fused AdamW elsewhere."""
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

family, tokens, batch, layers, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
iters = int(sys.argv[6]) if len(sys.argv) > 6 else 12
device = torch.device("cuda:0")
is_lm = family not in ("llama", "llama1b")
uses_sgd = family in ("llama", "llama-lm") or how == "offload"


def make_model():
    import transformers as hf

    common = dict(num_hidden_layers=layers, use_cache=False, max_position_embeddings=32768)
    if family.startswith("llama"):
        sizes = (2048, 8192, 64) if family.startswith("llama1b") else (4096, 14336, 128)
        config = hf.LlamaConfig(vocab_size=128256, hidden_size=sizes[0], intermediate_size=sizes[1], head_dim=sizes[2], num_attention_heads=32,
                                num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=500000.0, num_labels=3, pad_token_id=0,
                                tie_word_embeddings=family.startswith("llama1b"), **common)
        return (hf.LlamaForCausalLM if is_lm else hf.LlamaForSequenceClassification)(config)
    sizes = (2048, 5504, 16, 16) if family == "qwen" else (1536, 8960, 12, 2)
    config = hf.Qwen2Config(vocab_size=151936, hidden_size=sizes[0], intermediate_size=sizes[1], num_attention_heads=sizes[2],
                            num_key_value_heads=sizes[3], rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=family != "qwen", **common)
    return hf.Qwen2ForCausalLM(config)


def shard(model):
    mesh = init_device_mesh("cuda", (1,))
    policy = MixedPrecisionPolicy() if family == "qwen" else MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    offload = CPUOffloadPolicy() if how == "offload" else OffloadPolicy()
    for block in model.model.layers:
        if how == "compile":
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy, offload_policy=offload)
    fully_shard(model, mesh=mesh, mp_policy=policy, offload_policy=offload)


class Adapted(torch.nn.Module):
    """y = base(x) + 2 up(down(x)), base frozen."""

    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base
        self.down = torch.nn.Linear(base.in_features, rank, bias=False)
        self.up = torch.nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + 2 * self.up(self.down(x))


def adapt(model):
    model.requires_grad_(False)
    for block in model.model.layers:
        for part in (block.self_attn, block.mlp):
            for name, layer in list(part.named_children()):
                if isinstance(layer, torch.nn.Linear):
                    setattr(part, name, Adapted(layer))
        if how == "compile":
            block.compile()


def prepare():
    torch.manual_seed(1)
    if family == "llama-lora":
        torch.set_default_dtype(torch.bfloat16)
    with device:
        model = make_model()
        if family == "llama-lora":
            adapt(model)
    if family == "qwen":
        model = model.to(torch.bfloat16)
    if family == "qwen" and how == "compile":
        model.compile()
    elif family != "llama-lora":
        shard(model)
    if uses_sgd:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, foreach=True)
    else:
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=True)
    loss_of_logits = torch.nn.CrossEntropyLoss()

    def loss():
        ids = torch.randint(1, 128256, (batch, tokens), device=device)
        if is_lm:
            return model(input_ids=ids, labels=ids).loss
        return loss_of_logits(model(input_ids=ids).logits, torch.randint(0, 3, (batch,), device=device))

    model.train()
    return optimizer, loss


def timed_step(optimizer, loss):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


result = dict(family=family, how=how, tokens=tokens, batch=batch, layers=layers, torch=torch.__version__)
os.environ.setdefault("MASTER_ADDR", "localhost")
os.environ.setdefault("MASTER_PORT", "12398")
dist.init_process_group("cpu:gloo,cuda:nccl" if how == "offload" else "nccl", rank=0, world_size=1)
try:
    optimizer, loss = prepare()
    for _ in range(3):
        timed_step(optimizer, loss)
    torch.cuda.reset_peak_memory_stats()
    times = sorted(timed_step(optimizer, loss) for _ in range(iters))
    median = times[len(times) // 2]
    result.update(ms=round(median, 1), best_ms=round(times[0], 1), iqr_ms=round(times[len(times) * 3 // 4] - times[len(times) // 4], 1),
                  tokens_per_s=round(batch * tokens / median * 1000), peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2))
except Exception as error:  # the table says what went wrong and goes on
    result.update(error=str(error)[:300])
print("RESULT", json.dumps(result), flush=True)
dist.destroy_process_group()
