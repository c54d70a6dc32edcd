#!/usr/bin/env python3
"""Memory of one rank of the FSDP tutorial (document 003) in PyTorch itself, on this machine's GPU.

The tutorial's program with a fake process group: one rank of N, whose collectives return at once, so that memory is
that of the job and times mean nothing. Prints one JSON list: a row per wrapper and stage, bytes as the CUDA allocator
counts them. Run by `moonshard sweep fsdp_linear --with-torch`; by itself: python3 fsdp_linear_torch.py --ranks 8
"""
import argparse
import gc
import json
import os
import sys


def read_memory(torch, parallel, stage):
    return {
        "parallel": parallel,
        "stage": stage,
        "allocated_bytes": torch.cuda.memory_allocated(),
        "max_allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.memory_reserved(),
        "max_reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def wrap(torch, model, parallel):
    if parallel == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    from torch.distributed.fsdp import FullyShardedDataParallel, BackwardPrefetch
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        forward_prefetch=False,
        device_id=0,
    )


def measure(torch, parallel, args):
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    rows = []
    shape = (args.batch_size, args.width)
    data, target = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")
    rows.append(read_memory(torch, parallel, "after data"))
    layers = [torch.nn.Linear(args.width, args.width, device="cuda") for _ in range(args.layers)]
    model = torch.nn.Sequential(*layers)
    del layers
    rows.append(read_memory(torch, parallel, "after model creation"))
    model = wrap(torch, model, parallel)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for _ in range(args.warmup):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data), target).backward()
        optimizer.step()
    torch.cuda.synchronize()
    rows.append(read_memory(torch, parallel, "after warmup"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--batch_size", type=int, default=8192)
    parser.add_argument("--width", type=int, default=16384)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--output", default="")
    args = parser.parse_args()
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not torch.cuda.is_available():
        sys.exit("needs a GPU that PyTorch can use")
    os.environ.setdefault("MASTER_ADDR", "localhost")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=args.ranks)
    rows = []
    for parallel in ("ddp", "fsdp"):
        rows.extend(measure(torch, parallel, args))
    text = json.dumps(rows, indent=1)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
