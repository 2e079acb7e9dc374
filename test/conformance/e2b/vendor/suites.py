"""Runs E2B's suites in a copy of its repository, and compares what fails with the table of docs/protocols/e2b-suites.md.

Each suite runs against tend, by its URL. Many of its tests have a mock in place of the server and compare its addresses, which
the variables with tend's change: files with mocks in which something failed run again without these variables, and so without
any server. Files in which something still fails run once more, one at a time, since the tests wait for fixed times; and then
by tend's name and TLS, which is how E2B's own server is found.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

COPY, AT, REPORTS, TABLE = map(Path, sys.argv[1:5])  # AT has the packages of PACKAGES
# Not run, and so removed from the copy: tests of nothing but the internet. What runs in a browser, on Cloudflare, Bun and
# Deno are projects of their own, which need programs from the internet.
LEFT_OUT = {
    "js": ["tests/sandbox/internetAccess.test.ts"],
    "python": ["tests/*/*/test_internet_access.py"],
    "cli": [],
}
MOCKS = re.compile(r"msw|e2b\.app|\bvi\.|monkeypatch|[Mm]ock|E2B_(DOMAIN|API_URL|SANDBOX_URL)")
PATIENCE = 120  # seconds for a test that names no time of its own


URL, NAME, ALONE = "by URL", "by name", "without a server"


def environment(how):
    named = dict(shlex.split(line)[1].split("=", 1) for line in os.environ["TEND_NAMED"].splitlines() if line.startswith("export "))
    env = dict(os.environ, CI="1", E2B_PIPE_INTEGRATION_STRICT="1", E2B_API_KEY=named["E2B_API_KEY"])
    if how == URL:
        env.update(E2B_API_URL=env["TEND_URL"], E2B_SANDBOX_URL=env["TEND_URL"])
    elif how == NAME:
        env.update(named)
        # A machine that trusts tend's certificates: a test gives the command line PATH, but not the variables that say so.
        node = COPY / "trusting/node"
        node.parent.mkdir(exist_ok=True)
        words = [f"{name}={value}" for name, value in named.items() if name.startswith("NODE_")] + [shutil.which("node")]
        node.write_text(f'#!/bin/sh\nexec env {shlex.join(words)} "$@"\n')
        node.chmod(0o755)
        env["PATH"] = f"{node.parent}:{env['PATH']}"
    for name in ("CLI_BACKEND_SANDBOX", "CLI_BACKEND_TEST", "PIPE_SANDBOX", "PIPE_TEST", "PIPE_CMD"):
        env[f"E2B_{name}_TIMEOUT_MS"] = str(PATIENCE * 1000)
    return env


def vitest(package, projects, files, how, report):
    """The results of a run of vitest: {test: (status, message)}."""
    words = ["node_modules/.bin/vitest", "run", "--reporter=json", f"--outputFile.json={report}", f"--testTimeout={PATIENCE * 1000}"]
    words += [f"--maxWorkers={1 if files and how != ALONE else 2}"] + [f"--project={p}" for p in projects]
    words += files
    folder = AT / package
    run(words, folder, how, report)
    found = {}
    for file in json.loads(report.read_text())["testResults"]:
        name = os.path.relpath(file["name"], folder)
        for test in file["assertionResults"]:
            key = f"{name}: {test['fullName']}"
            while key in found:  # some tests have the same name
                key += " again"
            found[key] = (test["status"], " ".join(test["failureMessages"]))
        if not file["assertionResults"]:
            found[f"{name}: "] = (file["status"], file.get("message", ""))
    return found


def js(files, how, report):
    return vitest(PACKAGES["js"], ["unit", "template", "connectionConfig"], files, how, report)


def cli(files, how, report):
    return vitest(PACKAGES["cli"], [], files, how, report)


def python(files, how, report):
    folder = AT / PACKAGES["python"]
    words = [str(COPY / "python/bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--timeout={PATIENCE}", f"--junitxml={report}"]
    words += [] if files and how != ALONE else ["--numprocesses=2"]
    words += files
    run(words, folder, how, report)
    found = {}
    for case in ET.parse(report).iter("testcase"):
        status, message = "passed", ""
        for end in case:
            if end.tag in ("failure", "error"):
                status, message = "failed", end.get("message", "")
            elif end.tag == "skipped":
                status = "skipped"
        path = python_file(folder, case.get("classname").split("."))
        found[f"{path}: {case.get('name')}"] = (status, message)
    return found


def python_file(folder, parts):
    """The file that a class name of JUnit's means: it may end with classes."""
    for n in range(len(parts), 0, -1):
        path = "/".join(parts[:n]) + ".py"
        if (folder / path).exists():
            return path
    return "/".join(parts)


def run(words, folder, how, report):
    report.unlink(missing_ok=True)
    with open(report.with_suffix(".log"), "w") as log:
        subprocess.run(words, cwd=folder, env=environment(how), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    if not report.exists():
        sys.exit(f"{words[0]} made no report; see {report.with_suffix('.log')}")


def failed(results):
    return {test for test, (status, _) in results.items() if status == "failed"}


def files_of(tests):
    return sorted({test.split(": ")[0] for test in tests})


PACKAGES = {"js": "js-sdk", "python": "python-sdk", "cli": "cli"}


def mocks(suite, file):
    return MOCKS.search((AT / PACKAGES[suite] / file).read_text())


def known():
    """The rows of the table: (suite, pattern of tests, reason)."""
    rows = []
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] in PACKAGES and len(cells) == 3:
            rows += [(cells[0], pattern, cells[2]) for pattern in re.findall(r"`([^`]+)`", cells[1])]
    return rows


def examine(suite, run_suite):
    """Runs a suite, prints its figures, and returns what failed: {test: message}."""
    results = run_suite([], URL, REPORTS / f"{suite}.report")

    def again(files, how, name):
        """Runs files again, and returns what passes now."""
        then = run_suite(files, how, REPORTS / f"{suite}-{name}.report") if files else {}
        passed = sorted(t for t in failed(results) if then.get(t, ("failed",))[0] == "passed")
        results.update({t: then[t] for t in passed})
        return passed

    alone = again([file for file in files_of(failed(results)) if mocks(suite, file)], ALONE, "alone")
    again(files_of(failed(results)), URL, "again")
    named = again(files_of(failed(results)), NAME, "named")
    count = Counter(status for status, _ in results.values())
    skipped = len(results) - count["passed"] - count["failed"]
    print(f"{suite}: {count['passed']} of {len(results)} passed, {len(alone)} of them only {ALONE}, and {len(named)} only {NAME};", end=" ")
    print(f"{skipped} skipped, {count['failed']} failed")
    for how, tests in {ALONE: alone, NAME: named}.items():
        for file, n in Counter(t.split(": ")[0] for t in tests).items():
            print(f"  {how}: {n} in {file}")
    return {test: results[test][1] for test in sorted(failed(results))}


def main():
    rows, new = known(), 0
    for suite in sys.argv[5:]:
        for pattern in LEFT_OUT[suite]:
            for file in (AT / PACKAGES[suite]).glob(pattern):
                file.unlink()
        failures = examine(suite, {"js": js, "python": python, "cli": cli}[suite])
        used, unknown = set(), []
        for test, message in failures.items():
            matching = [row for row in rows if row[0] == suite and fnmatch.fnmatchcase(test, row[1])]
            used.update(matching)
            if not matching:
                unknown.append((test, message))
        for row in rows:
            if row[0] == suite:
                n = sum(fnmatch.fnmatchcase(test, row[1]) for test in failures)
                print(f"  {'listed: ' + str(n) if n else 'listed, but nothing failed'}: {row[1]}")
        for test, message in unknown:
            print(f"  NOT LISTED: {test}\n      {' '.join(message.split())[:400]}")
        new += len(unknown)
        sys.stdout.flush()
    if new:
        sys.exit(f"{new} failed that {TABLE.name} does not list; the logs are in {REPORTS}")


main()
