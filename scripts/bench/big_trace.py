#!/usr/bin/env python3
"""A synthetic Kineto trace for scripts/bench/trace_speed.lua: steps of launches, kernels on two streams, events, waits.

Usage: big_trace.py FILE EVENTS
"""
import gzip
import sys


def main():
    path, wanted = sys.argv[1], int(sys.argv[2])
    opener = gzip.open if path.endswith(".gz") else open
    count, clock, device, correlation = 0, 1000.0, [1010.0, 1010.0], 1
    steps = max(1, wanted // 100_000)
    shapes = '"External id": 1, "Record function id": 0, "Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"], ' \
             '"Input Dims": [[2048, 4096], [4096, 4096]], "Ev Idx": 7'
    with opener(path, "wt") as out:
        out.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": [\n')

        def put(text):
            nonlocal count
            out.write(("" if count == 0 else ",\n") + text)
            count += 1

        def span(category, name, pid, tid, start, length, arguments=""):
            put('{"ph": "X", "cat": "%s", "name": "%s", "pid": %s, "tid": %s, "ts": %.3f, "dur": %.3f, "args": {%s}}'
                % (category, name, pid, tid, start, length, arguments))

        for step in range(steps):
            goal = wanted * (step + 1) // steps
            begin = clock
            while count < goal - 2:
                layer = (count // 40) % 32
                op_begin = clock
                stream = 1 if count % 7 == 0 else 0
                span("cuda_runtime", "cudaLaunchKernel", 10, 10, clock + 2, 4, '"cbid": 211, "correlation": %d' % correlation)
                start = max(device[stream] + 1.2, clock + 7)
                length = 5 + (count * 7919) % 23
                span("kernel", "void gemm_kernel_%d<float>(float const*)" % (count % 50), 0, 7 + 6 * stream, start, length,
                     '"External id": 1, "queued": 0, "device": 0, "context": 1, "stream": %d, "correlation": %d, "registers per thread": 64, '
                     '"shared memory": 0, "grid": [64, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %%": 0'
                     % (7 + 6 * stream, correlation))
                put('{"ph": "s", "id": %d, "pid": 10, "tid": 10, "ts": %.3f, "cat": "ac2g", "name": "ac2g"}' % (correlation, clock + 2))
                put('{"ph": "f", "id": %d, "pid": 0, "tid": %d, "ts": %.3f, "cat": "ac2g", "name": "ac2g", "bp": "e"}'
                    % (correlation, 7 + 6 * stream, start))
                device[stream] = start + length
                correlation += 1
                clock += 9
                span("cpu_op", "aten::mm", 10, 10, op_begin, clock - op_begin - 0.5, shapes)
                span("cpu_op", "aten::linear", 10, 10, op_begin - 0.5, clock - op_begin + 0.2, shapes)
                if layer != ((count // 40) % 32):
                    clock += 3
            end = max(clock, device[0], device[1]) + 5
            span("cuda_runtime", "cudaDeviceSynchronize", 10, 10, clock, end - 1 - clock, '"cbid": 165, "correlation": %d' % correlation)
            correlation += 1
            span("user_annotation", "ProfilerStep#%d" % step, 10, 10, begin - 1, end - begin)
            clock = device[0] = device[1] = end + 5
        out.write("\n]}\n")


main()
