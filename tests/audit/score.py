#!/usr/bin/env python3
"""Precision and recall of `isthmus audit --source` on labels.tsv (see tests/README.md).

    for name in D-FINE MobileSAM Track-Anything deep_sort_pytorch FastSAM ByteTrack Grounded-Segment-Anything aigt sam2 \
      co-tracker rf-detr Cutie mmtracking norfair Segment-and-Track-Anything dinov2 Depth-Anything-V2; do
      isthmus audit --source $name --json $name.json >/dev/null
    done
    tests/audit/score.py *.json

Run the audit beside the checkouts: labels.tsv has paths relative to the folder that holds them.
"""
import csv
import json
import pathlib
import sys


def found_lines(reports):
    found = set()
    for report in reports:
        for finding in json.loads(pathlib.Path(report).read_text())["findings"]:
            found.add((finding["file"], finding["line"]))
            found.update((call["file"], call["line"]) for call in finding["chain"])
    return found


def main():
    found = found_lines(sys.argv[1:])
    with open(pathlib.Path(__file__).with_name("labels.tsv"), encoding="utf-8") as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    for sample, stratum in sorted({(row["set"], row["stratum"]) for row in rows}):
        counts = {}
        for row in rows:
            if (row["set"], row["stratum"]) == (sample, stratum):
                key = row["label"], (row["file"], int(row["line"])) in found
                counts[key] = counts.get(key, 0) + 1
        right, missed = counts.get(("yes", True), 0), counts.get(("yes", False), 0)
        wrong, hidden = counts.get(("no", True), 0), counts.get(("hidden", False), 0)
        print(f"{sample} {stratum}: {sum(counts.values())} lines, {right} found, {missed} missed, {wrong} wrongly "
              f"found, {hidden} hidden", end="")
        if right:
            print(f"; precision {right / (right + wrong):.3f}, recall {right / (right + missed):.3f}", end="")
        print()
    for row in rows:
        if ((row["file"], int(row["line"])) in found) != (row["label"] == "yes"):
            print(f"  {row['set']}: {row['file']}:{row['line']} is labelled {row['label']}")


main()
