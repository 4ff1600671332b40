"""Prints how many tests passed, failed and were left out, from the events of go test -json.

A test counts by its last result, so one that passed when it was run again has passed. A
package that failed without a failed test counts as one.
"""

import json
import sys


def main(paths: list[str]) -> None:
    results: dict[tuple[str, str], str] = {}
    for path in paths:
        with open(path, encoding="utf-8") as events:
            for line in events:
                event = json.loads(line)
                if event["Action"] in ("pass", "fail", "skip") and "/" not in event.get("Test", ""):
                    results[event["Package"], event.get("Test", "")] = event["Action"]
    failed = {package for (package, test), result in results.items() if test and result == "fail"}
    counts = {"pass": 0, "fail": 0, "skip": 0}
    for (package, test), result in results.items():
        if test or (result == "fail" and package not in failed):
            counts[result] += 1
    print(f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped")


main(sys.argv[1:])
