"""Compares what failed of the suites with the table of docs/protocols/interpreter-suites.md: table.py TABLE REPORTS SUITE…"""

import fnmatch
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def python(report):
    for case in ET.parse(report).iter("testcase"):
        ends = {end.tag: end.get("message", "") for end in case}
        bad = ends.get("failure", ends.get("error"))
        name = f"{case.get('classname').removeprefix('tests.')}: {case.get('name')}"
        yield name, "failed" if bad is not None else "skipped" if "skipped" in ends else "passed", bad or ""


def js(report):
    for file in json.loads(report.read_text())["testResults"]:
        path = file["name"].split("/tests/")[-1]
        for test in file["assertionResults"]:
            yield f"{path}: {test['fullName']}", test["status"], " ".join(test["failureMessages"])
        if not file["assertionResults"]:
            yield f"{path}: ", file["status"], file.get("message", "")


def main():
    table, reports = map(Path, sys.argv[1:3])
    rows = re.findall(r"^\| (python|js) \| `([^`]+)` \| ", table.read_text(), re.M)
    unknown = 0
    for suite in sys.argv[3:]:
        results = list({"python": python, "js": js}[suite](reports / f"{suite}.report"))
        count = {s: sum(status == s for _, status, _ in results) for s in ("passed", "failed")}
        print(f"{suite}: {count['passed']} of {len(results)} passed, {count['failed']} failed")
        failed = [(name, message) for name, status, message in results if status == "failed"]
        for of, pattern in rows:
            if of == suite:
                print(f"  listed: {sum(fnmatch.fnmatchcase(name, pattern) for name, _ in failed)}: {pattern}")
        for name, message in failed:
            if not any(of == suite and fnmatch.fnmatchcase(name, pattern) for of, pattern in rows):
                unknown += 1
                print(f"  NOT LISTED: {name}\n      {' '.join(message.split())[:400]}")
    if unknown:
        sys.exit(f"{unknown} failed that {table.name} does not list; the logs are in {reports}")


main()
