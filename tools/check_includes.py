#!/usr/bin/env python3
"""Checks who includes whom.

  - A folder of src/ includes only from itself and the folders before it in ORDER (docs/design.md).
  - include/ridgeline includes only itself; extend.h alone may show parts of src/, since it is for those who add operators.
  - A project file is included in quotes by its path below include/ or src/, and exists.
  - Every header has `#pragma once` (or is a Highway source that is compiled once per target).
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORDER = "core machine ir ops formats kernels rivals tune optimize plan verify session teach cli".split()
KERNELS = "reference cpu cuda npu".split()  # devices know nothing of each other
GENERATED = {"onnx.pb.h", "ridgeline/ops.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def part_of(path):
    return path.split("/")[0]


def device_of(path):
    parts = path.split("/")
    return parts[1] if parts[0] == "kernels" and len(parts) > 2 and parts[1] in KERNELS else None


def problems_of(file):
    name = file.relative_to(ROOT).as_posix()
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".h" and "#pragma once" not in text and "HWY_TARGET_TOGGLE" not in text:
        yield 1, "a header without #pragma once"
    where = name.split("/", 1)[1]
    mine = part_of(where) if name.startswith("src/") else None
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        below_src = (ROOT / "src" / target).is_file()
        below_include = (ROOT / "include" / target).is_file()
        if quote == "<":
            if below_src or below_include:
                yield number, f"<{target}> is ours: in quotes"
            continue
        if target in GENERATED or target.startswith("hwy/"):
            continue
        if not below_src and not below_include:
            yield number, f"\"{target}\" is neither below src/ nor below include/ (other libraries stand in <>)"
            continue
        if name.startswith("include/"):
            if below_src and name != "include/ridgeline/extend.h":
                yield number, f"the public API shows \"{target}\" of src/"
            continue
        if mine is None or not below_src:
            continue
        other = part_of(target)
        if mine not in ORDER or other not in ORDER:
            yield number, f"src/{mine if mine not in ORDER else other} has no place in the order of folders ({sys.argv[0]})"
        elif ORDER.index(other) > ORDER.index(mine):
            yield number, f"src/{mine} includes \"{target}\": {other} comes after {mine}"
        elif device_of(where) and device_of(target) and device_of(where) != device_of(target) and device_of(target) != "reference":
            yield number, f"kernels/{device_of(where)} includes \"{target}\" of another device"


def main():
    files = sorted(f for folder in ("include", "src") for f in (ROOT / folder).rglob("*") if f.suffix in (".h", ".cpp"))
    found = [(f, number, what) for f in files for number, what in problems_of(f)]
    for file, number, what in found:
        print(f"{file.relative_to(ROOT)}:{number}: {what}")
    print(f"{len(files)} files, {len(found)} problems")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
