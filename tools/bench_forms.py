#!/usr/bin/env python3
"""Every form of matmul beside its own floor: no form may collapse, and batches must scale.

    tools/bench_forms.py [build/release/ridgeline] [--threads 1] [--time 0.2] [--least 0.5] [--json FILE]

A quiet machine is wanted: the share is floor / median from memory that was not touched before, the best of three runs
(a neighbour only ever takes away). Exit code 1 if a shape is under --least of its floor.
"""
import argparse
import json
import subprocess
import sys

SHAPES = [(1, 4096, 4096), (4, 1024, 4096), (16, 1024, 1024), (128, 768, 768), (128, 3072, 768), (512, 1024, 1024), (100, 1000, 500)]
BATCHED = [(64, 64, 64), (128, 128, 64), (128, 64, 128), (197, 197, 64), (512, 64, 512)]
LOW = [shape for shape in SHAPES if shape[2] % 256 == 0]
FORMS = [  # form, keys, shapes
    ("plain", "", SHAPES), ("batched", "batch=12", BATCHED), ("batched", "batch=12 packed=0", BATCHED),
    ("transposed", "trans_a=1", SHAPES), ("transposed", "trans_b=1", SHAPES), ("transposed", "trans_a=1 trans_b=1", SHAPES),
    ("not packed", "packed=0", SHAPES), ("not packed", "packed=0 trans_b=1", SHAPES),
    ("beta", "beta=1", SHAPES), ("beta", "alpha=0.5 beta=0.5", SHAPES),
    ("epilogue", "epilogue=bias+relu", SHAPES), ("epilogue", "epilogue=bias+gelu", SHAPES), ("epilogue", "epilogue=bias+add+silu", SHAPES),
    ("bf16", "dtype=bf16", SHAPES), ("u8s8", "dtype=u8s8", SHAPES)]
FORMS += [("low-bit", f"weights={w}", LOW) for w in ("bf16", "f16", "i8", "i4:g128", "i4:g32", "q8_0", "q4_0", "q4_k")]


def bench(arguments, keys, m, n, k, runs=3):
    """The chosen kernel's row of the run with the best share."""
    best = None
    for _ in range(runs):
        command = [arguments.binary, "bench", "matmul", f"m={m}", f"n={n}", f"k={k}", *keys.split(), "--threads", arguments.threads,
                   "--time", arguments.time, "--json", "-", "--quiet"]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        row = next(r for r in result["kernels"] if r["chosen"])
        row["bound"] = result["bound"]
        if best is None or row["roof_share"] > best["roof_share"]:
            best = row
        if best["roof_share"] >= float(arguments.least):
            break
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?", default="build/release/ridgeline")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--time", default="0.2", help="seconds a measurement")
    parser.add_argument("--least", default="0.5", help="share of its floor that each shape is to reach")
    parser.add_argument("--json", help="also write all rows to this file")
    arguments = parser.parse_args()
    rows, below = [], 0
    for form, keys, shapes in FORMS:
        for m, n, k in shapes:
            row = bench(arguments, keys, m, n, k)
            short = row["roof_share"] < float(arguments.least)
            below += short
            rows.append({"form": form, "keys": keys, "m": m, "n": n, "k": k, "kernel": row["name"], "median_us": row["median_us"],
                         "bound": row["bound"], "roof_share": row["roof_share"]})
            print(f"{'SHORT' if short else 'ok':5} {row['roof_share']:.2f} {form:10} {keys:22} {m}x{n}x{k} {row['name']} "
                  f"{row['median_us']:.1f} us, {row['bound']}", flush=True)
    print("batches of 128x128x64, us a matrix:", end="")
    for count in (1, 2, 4, 8, 16, 32, 64):
        row = bench(arguments, f"batch={count} packed=0", 128, 128, 64)
        rows.append({"form": "batch scaling", "batch": count, "median_us": row["median_us"]})
        print(f"  {count}: {row['median_us'] / count:.1f}", end="")
    print(f"\n{len(rows)} rows, {below} under {arguments.least} of their floor")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)
    sys.exit(1 if below else 0)


if __name__ == "__main__":
    main()
