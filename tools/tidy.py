#!/usr/bin/env python3
"""Runs clang-tidy over the project's sources, last changed first, until a time budget is spent; says what it read."""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"


def by_last_change():
    """Sources in the build, those changed last (uncommitted, then newest commit) first."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    known = {pathlib.Path(c["file"]).resolve() for c in commands}
    log = subprocess.run(["git", "log", "--name-only", "--format="], cwd=ROOT, capture_output=True, text=True).stdout
    status = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout
    names = [line[3:] for line in status.splitlines()] + log.splitlines()
    order = {}
    for name in names:
        path = (ROOT / name).resolve()
        if path.suffix == ".cpp" and path in known:
            order.setdefault(path, len(order))
    return sorted(order, key=order.get)


def read(path):
    done = subprocess.run(["clang-tidy-14", "-p", BUILD, "--quiet", "--extra-arg=-Wno-unknown-warning-option", path], capture_output=True, text=True)
    return path, done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=240, help="seconds")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    files = by_last_change()
    end = time.monotonic() + arguments.budget
    unread, bad = 0, 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for future in [pool.submit(lambda p: read(p) if time.monotonic() < end else None, path) for path in files]:
            if (result := future.result()) is None:
                unread += 1
                continue
            path, code, text = result
            if code:
                bad += 1
                print(text)
    print(f"{len(files) - unread} of {len(files)} files read, {bad} with findings")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
