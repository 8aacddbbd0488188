#!/usr/bin/env python3
"""Known failures of this kind of software, as tests: tests/known/run.py [--bin RIDGELINE] [ID or GLOB ...]

Sound models run with all passes and with none, and their outputs are compared with the right ones. Broken files have
to be refused: exit code 2 and a message that names what is wrong, within the time and memory below. A failure is
printed with the command that shows it; its files stay in build/known/ID/VARIANT. Last come what is not supported yet,
by id and reason, and the count. A refusal for want of an operator that exists is a failure.
"""

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import attention  # noqa: F401 (each registers its cases)
import broken  # noqa: F401
import broken_gguf  # noqa: F401
import contributed  # noqa: F401
import fusion  # noqa: F401
import known
import launches  # noqa: F401
import numerics  # noqa: F401
import quantized  # noqa: F401
import shapes  # noqa: F401
from onnx_file import Tensor, tensor

ROOT = Path(__file__).resolve().parents[2]
REFUSED, NO_MEMORY = 2, 3  # exit codes
BROKEN_SECONDS, BROKEN_BYTES = 10, 2 << 30
THREADS = ["--threads", "2"]  # the same on every machine
SECONDS, LARGE_SECONDS, LARGE_BYTES = 120, 600, 12 << 30
INSTRUCTION_SETS = ("scalar", "avx2")  # beside the machine's own
OLDEST_OPSET = 1  # docs/onnx.md
WITHOUT_KERNEL = {"GPU-07": "RMSNormalization of f16", "GPU-09": "MatMul of f16", "GPU-16": "Attention as a node"}


class Failure(Exception):
    pass


class Unsupported(Exception):
    pass


class Runner:

    def __init__(self, binary, folder, limited):
        self.binary, self.folder, self.limited = binary, folder, limited
        self.own = threading.local()  # the last command of each thread
        listed = json.loads(subprocess.run([binary, "op", "list", "--json", "-"], capture_output=True,
                                           check=True).stdout)
        self.operators = {o["name"] for o in listed["operators"]}
        passes = json.loads(subprocess.run([binary, "passes", "--json", "-"], capture_output=True, check=True).stdout)
        self.passes = [p["name"] for p in passes["passes"]]

    def call(self, command, seconds, limit=None, isa=None):
        """(exit code, message); dying by a signal or not ending is a failure."""
        command = [str(self.binary), *map(str, command)]
        self.own.last = (f"RIDGELINE_ISA={isa} " if isa else "") + " ".join(command)
        try:
            done = subprocess.run(["prlimit", f"--as={limit}", *command] if limit and self.limited else command,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  timeout=seconds, env=dict(os.environ, RIDGELINE_ISA=isa) if isa else None)
        except subprocess.TimeoutExpired:
            raise Failure(f"no end after {seconds} s")
        message = " ".join(done.stderr.decode(errors="replace").split())
        if done.returncode < 0 or done.returncode > 127:
            raise Failure(f"killed (exit {done.returncode}) {message[-240:]}")
        return done.returncode, message

    def lacking(self, item):
        """What the product does not have that the case needs, or None."""
        if item.model is None:
            return None
        missing = sorted({n.op for n in item.model.nodes} - self.operators)
        if missing:
            return f"operator {', '.join(missing)}"
        return f"operator set {item.model.opsets['']}" if item.model.opsets[""] < OLDEST_OPSET else None

    def given(self, folder, inputs):
        options = []
        for name, value in inputs.items():
            np.save(folder / f"{name}.npy", value)
            options += ["--input", f"{name}={folder / name}.npy"]
        return options

    def right(self, case_id, item, folder, passes, isa):
        (folder / "model.onnx").write_bytes(item.model.encode())
        for number, (inputs, outputs) in enumerate(item.sets):
            data, made = folder / f"test_data_set_{number}", folder / f"{passes}_{number}"
            data.mkdir(exist_ok=True), made.mkdir()
            for stem, values in (("input", inputs), ("output", outputs)):
                for place, (name, value) in enumerate(values.items()):
                    (data / f"{stem}_{place}.pb").write_bytes(tensor(value).encode(name))
            command = [
                "run", folder / "model.onnx", *self.given(data, inputs), "--output-dir", made, "--passes", passes,
                *THREADS
            ]
            limits = (LARGE_SECONDS, LARGE_BYTES) if item.large else (SECONDS, None)
            code, message = self.call(command, *limits, isa=isa)
            if code == REFUSED and message and item.may_refuse:
                return
            if code == REFUSED and "unsupported" in message and self.lacking(item):
                raise Unsupported(self.lacking(item))
            if code == NO_MEMORY and message and case_id in WITHOUT_KERNEL:
                raise Unsupported(f"more than 12 GiB on the reference, for want of a kernel: {WITHOUT_KERNEL[case_id]}")
            if code:
                raise Failure(f"exit {code}: {message[-240:]}")
            for name, value in outputs.items():
                if wrong := difference(made / f"{name}.npy", value, item):
                    raise Failure(f"{name} {wrong}")
        if len(item.sets) > 1:  # and in one process, where plans of other shapes are there already
            code, message = self.call(["suite", folder, "--passes", passes], SECONDS, isa=isa)
            if code:
                raise Failure(f"one run after the other: exit {code}: {message[-240:]}")

    def refused(self, item, folder):
        file = folder / item.name
        for name, content in {item.name: item.content, **item.beside}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                (folder / name).mkdir()
            else:
                (folder / name).write_bytes(content)
        if item.inputs is None:
            command = ["inspect", file]
        else:
            feeds = [part for name, other in item.feeds.items() for part in ("--input", f"{name}={folder / other}")]
            command = ["run", file, *self.given(folder, item.inputs), *feeds, "--output-dir", folder]
        code, message = self.call(command, BROKEN_SECONDS, BROKEN_BYTES)
        if item.sound or item.may_load and code != REFUSED:
            if code == 0 or item.may_load and code == NO_MEMORY and message:
                return
            raise Failure(f"exit {code}: {message[-240:]}")
        if code != REFUSED or not message:
            raise Failure(f"exit {code}, {REFUSED} and a message expected: {message[-240:]}")
        said = message.replace(str(folder), "").lower()
        for words in item.mentions:
            if not any(word.lower() in said for word in words.split("|")):
                raise Failure(f"the message does not mention {words}: {message[-240:]}")


def difference(file, right, item):
    """None, or what is wrong with the array in the file."""
    if not file.exists():
        return "is missing"
    made = np.load(file, allow_pickle=False)
    if made.dtype != right.dtype or made.shape != right.shape:
        return f"is {made.dtype}{list(made.shape)}, right is {right.dtype}{list(right.shape)}"
    if right.dtype.kind == "f":
        relative, absolute = item.tolerance
        wrong = ~np.isclose(made.astype(np.float64), right.astype(np.float64), relative, absolute, equal_nan=True)
        if item.signed_zero:
            wrong |= (right == 0) & (np.signbit(made) != np.signbit(right))
    else:
        wrong = made != right
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"differs in {wrong.sum()} of {wrong.size}, first at {list(at)}: {made[at]}, right is {right[at]}"


def flat(items):
    for item in items:
        if hasattr(item, "__next__"):
            yield from item
        else:
            yield item


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=ROOT / "build/release/ridgeline", type=Path)
    parser.add_argument("--folder", default=ROOT / "build/known", type=Path, help="where the files of the cases go")
    parser.add_argument("--large", action="store_true", help="the cases that need 1 to 10 GB of memory, and no others")
    parser.add_argument("--sweep", action="store_true",
                        help="sound models alone: with each pass by itself, and with all at each instruction set")
    parser.add_argument("--unlimited", action="store_true",
                        help="no limit of address space: a sanitizer needs terabytes")
    parser.add_argument("cases", nargs="*", default=["*"], help="ids, or patterns of ids")
    options = parser.parse_args()
    runner = Runner(options.bin.resolve(), options.folder, not options.unlimited)

    def one(task):
        case_id, item, passes, isa = task
        name = f"{case_id}/{item.variant}" + (f" --passes {passes}" if passes else "") + (f" on {isa}" if isa else "")
        folder = options.folder / case_id / item.variant / (passes or "") / (isa or "")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            runner.right(case_id, item, folder, passes, isa) if passes else runner.refused(item, folder)
        except Unsupported as what:
            return name, None, str(what)
        except Failure as what:
            return name, f"{what}\n    {runner.own.last}", None
        if passes:
            shutil.rmtree(folder)  # thousands of files that say nothing
        return name, None, None

    forms = [("all", None), ("none", None)]
    if options.sweep:
        forms = [(name, None) for name in runner.passes] + [("all", isa) for isa in INSTRUCTION_SETS]
    tasks = []
    for case_id, (_, function) in sorted(known.cases.items()):
        if not any(fnmatch.fnmatch(case_id, pattern) for pattern in options.cases):
            continue
        for item in flat(function()):
            if isinstance(item, known.Right):
                tasks += [(case_id, item, *form) for form in forms if item.large == options.large]
            elif not options.large and not options.sweep:
                tasks.append((case_id, item, None, None))
    failed, unsupported = 0, {}
    with ThreadPoolExecutor(1 if options.large else os.cpu_count()) as pool:
        for name, failure, reason in pool.map(one, tasks):
            if failure:
                failed += 1
                print(f"{name}: {failure}", flush=True)
            if reason:
                unsupported.setdefault(f"{name.split('/')[0]} ({reason})", []).append(name)
    skipped = sum(map(len, unsupported.values()))
    if unsupported:
        print("unsupported: " + ", ".join(f"{what}: {len(names)}" for what, names in unsupported.items()))
    print(f"{len(tasks) - failed - skipped} passed, {failed} failed, {skipped} unsupported")
    return 1 if failed or not tasks else 0


if __name__ == "__main__":
    sys.exit(main())
