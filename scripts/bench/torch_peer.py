"""PyTorch's plain (non-private) step for the work of gpu.lua: what users of FSDP2 and torch.compile have today.
Usage: torch_peer.py llama|qwen TOKENS BATCH LAYERS eager|compile [ITERS]. Prints one line: RESULT {json}.
llama: sequence classification, float32 master weights, bfloat16 compute, float32 reduce, SGD, FSDP2 with a unit per block.
qwen: language modelling, bfloat16 weights, fused AdamW; eager with FSDP2 (zero3), compile as one graph without FSDP."""
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

family, tokens, batch, layers, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
iters = int(sys.argv[6]) if len(sys.argv) > 6 else 12
device = torch.device("cuda:0")


def llama_model():
    from transformers import LlamaConfig, LlamaForSequenceClassification

    config = LlamaConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=layers,
                         num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=8192, rms_norm_eps=1e-5,
                         rope_theta=500000.0, num_labels=3, pad_token_id=0, use_cache=False)
    with device:
        return LlamaForSequenceClassification(config)


def qwen_model():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(vocab_size=151936, hidden_size=2048, intermediate_size=5504, num_hidden_layers=layers,
                         num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=32768, rms_norm_eps=1e-6,
                         rope_theta=1000000.0, tie_word_embeddings=False, use_cache=False)
    with device:
        return Qwen2ForCausalLM(config).to(torch.bfloat16)


def shard(model, policy):
    mesh = init_device_mesh("cuda", (1,))
    for block in model.model.layers:
        if how == "compile":
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def prepare():
    torch.manual_seed(1)
    if family == "llama":
        model = llama_model()
        shard(model, MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, foreach=True)
        loss_of_logits = torch.nn.CrossEntropyLoss()

        def loss():
            ids = torch.randint(1, 128256, (batch, tokens), device=device)
            return loss_of_logits(model(input_ids=ids).logits, torch.randint(0, 3, (batch,), device=device))
    else:
        model = qwen_model()
        if how == "compile":
            model.compile()
        else:
            shard(model, MixedPrecisionPolicy())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

        def loss():
            ids = torch.randint(1, 151936, (batch, tokens), device=device)
            return model(input_ids=ids, labels=ids).loss
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
dist.init_process_group("nccl", rank=0, world_size=1)
try:
    optimizer, loss = prepare()
    for _ in range(3):
        timed_step(optimizer, loss)
    torch.cuda.reset_peak_memory_stats()
    times = sorted(timed_step(optimizer, loss) for _ in range(iters))
    median = times[len(times) // 2]
    result.update(ms=round(median, 1), best_ms=round(times[0], 1), tokens_per_s=round(batch * tokens / median * 1000),
                  peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2))
except Exception as error:  # the table says what went wrong and goes on
    result.update(error=str(error)[:300])
print("RESULT", json.dumps(result), flush=True)
dist.destroy_process_group()
