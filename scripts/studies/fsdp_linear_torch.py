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


def device_of(torch):
    return "cuda:0" if torch.cuda.is_available() else "cpu"


def no_communication(torch):
    """A hook for DDP's buckets: the fake group's own all-reduce has no result to hand on."""

    def hook(_, bucket):
        buffer = bucket.buffer()
        future = torch.futures.Future(devices=[buffer.device]) if buffer.is_cuda else torch.futures.Future()
        future.set_result(buffer)
        return future

    return hook


def wrap(torch, model, parallel):
    if parallel == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
        model.register_comm_hook(None, no_communication(torch))
        return model
    from torch.distributed.fsdp import FullyShardedDataParallel, BackwardPrefetch
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        forward_prefetch=False,
        device_id=torch.device(device_of(torch)),
    )


def measure(torch, parallel, args):
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    rows = []
    shape = (args.batch_size, args.width)
    device = device_of(torch)
    data, target = torch.randn(shape, device=device), torch.randn(shape, device=device)
    rows.append(read_memory(torch, parallel, "after data"))
    layers = [torch.nn.Linear(args.width, args.width, device=device) for _ in range(args.layers)]
    model = torch.nn.Sequential(*layers)
    del layers
    rows.append(read_memory(torch, parallel, "after model creation"))
    model = wrap(torch, model, parallel)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for _ in range(args.warmup):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data), target).backward()
        optimizer.step()
    if device != "cpu":
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
    parser.add_argument("--on_cpu", action="store_true", help="only to see that the program runs: all figures are 0")
    args = parser.parse_args()
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not torch.cuda.is_available() and not args.on_cpu:
        sys.exit("needs a GPU that PyTorch can use: PyTorch counts no memory of the CPU")
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
