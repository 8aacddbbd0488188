#!/usr/bin/env python3
"""Runs ONNX's own cases, with all passes and with none, and compares the outcome with docs/onnx-suites.md.

  tools/onnx_suites.py                 fails if a case is wrong, or the document is stale
  tools/onnx_suites.py --write         writes the document
  tools/onnx_suites.py --newest DIR    also the cases that a newer `onnx` package generates (DIR/NAME/model.onnx)
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "build" / "release" / "ridgeline"
DOCUMENT = ROOT / "docs" / "onnx-suites.md"
DATA = pathlib.Path("/usr/share/libonnx-testdata/data")
FOLDERS = ("node", "simple", "pytorch-converted", "pytorch-operator")
# Cases that no result satisfies together with another copy of them, or whose expected value is further from the exact one than ours.
EXPLAINED = {
    "node/test_dft_inverse": "at ten of 200 values, which are 0 but for rounding, this suite expects 1.4e-15 (a transform in f64) and the newest package's, for the same input, 1.9e-7 "
                             "(one in f32); 1e-7 is allowed. Ours is computed in f32 and agrees with the latter",
    "newest/test_attention_4d_causal_fp16_expanded": "two of 192 values: the expected ones round exp and its sum to f16 inside of Softmax; of the first the exact value is 0.46919, ours 0.46899, the expected 0.46948",
}
NEWEST = "## The newest package's cases\n"
HEAD = """# ONNX's own cases

Written by `tools/onnx_suites.py --write`; a stale copy fails. A case is *refused* where the importer says that it does not take the model;
*random* ones are compared by type and shape. With all passes and with none the outcome is the same, or the case is listed as wrong.
"""


def reason_of(text):
    """The reason without paths, node names and counts: cases that are refused alike stand on one line."""
    match = re.search(r"^  (\S+) \(domain ([^,]+), operator set \d+\): \d+ nodes?, first '[^']*': (.*)", text, re.M)
    if match:
        domain = "" if match[2] == "ai.onnx" else f" ({match[2]})"
        return f"{match[1]}{domain}: {match[3]}"
    return re.sub(r"'[^']*'", "'...'", text.split("model.onnx: ")[-1].strip().splitlines()[0])


def run(folder, passes):
    done = subprocess.run([BINARY, "suite", folder, "--passes", passes, "--json", "-"], capture_output=True, text=True, timeout=1800)
    return json.loads(done.stdout)


def section(folder, name):
    """(text, wrong cases) of a folder of cases."""
    text, wrong = "", []
    results = {passes: run(folder, passes) for passes in ("all", "none")}
    explained = set()
    for passes, r in results.items():
        for w in r["wrong"]:
            if f"{name}/{w['case']}" in EXPLAINED:
                explained.add(w["case"])
            else:
                wrong.append(f"{name}/{w['case']} (passes {passes}): {w['reason']}")
    r = results["all"]
    if [c["case"] for c in r["refused"]] != [c["case"] for c in results["none"]["refused"]]:
        wrong.append(f"{name}: passes change what is refused")
    text += f"\n### {name}\n\n{r['cases']} cases: {len(r['passed'])} passed, {len(r['wrong'])} wrong, {len(r['refused'])} refused, {len(r['random'])} random.\n"
    for case in sorted(explained):
        text += f"\n{case.removeprefix('test_')} differs: {EXPLAINED[f'{name}/{case}']}.\n"
    by_reason = {}
    for case in r["refused"]:
        by_reason.setdefault(reason_of(case["reason"]), []).append(case["case"].removeprefix("test_"))
    if by_reason:
        text += "\n| refused because | cases |\n| --- | --- |\n"
    for reason, cases in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        text += f"| {reason.replace('|', chr(92) + '|')} | {len(cases)}: {', '.join(sorted(cases))} |\n"
    return text, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--newest", type=pathlib.Path)
    arguments = parser.parse_args()
    text, wrong = HEAD, []
    for name in FOLDERS:
        part, bad = section(DATA / name, name)
        text += part
        wrong += bad
    before = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    newest = before.split(NEWEST, 1)[1] if NEWEST in before else ""
    if arguments.newest:
        newest, bad = section(arguments.newest, arguments.newest.name)
        wrong += bad
    if newest:
        text += "\n" + NEWEST + newest
    for line in wrong:
        print("wrong:", line)
    if arguments.write:
        DOCUMENT.write_text(text)
    elif text != before:
        print("docs/onnx-suites.md is stale: tools/onnx_suites.py --write")
    print(f"{len(wrong)} wrong")
    sys.exit(1 if wrong or (text != before and not arguments.write) else 0)


if __name__ == "__main__":
    main()
