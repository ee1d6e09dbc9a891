"""Checks all checkpoints below a folder, and prints a table; exits with 1 if one is damaged.

    python check_all.py FOLDER
"""

import os
import sys

import ferry


def reports(folder):
    """One for each checkpoint: of a run, for each iteration."""
    try:
        yield from ferry.verify(folder, run=True).iterations
    except ferry.Invalid:
        try:
            yield ferry.verify(folder)
        except (ferry.Invalid, ferry.NotFound, ferry.Unsupported) as error:  # some may be inside
            if isinstance(error, ferry.Unsupported):
                print(error, file=sys.stderr)
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    yield from reports(entry.path)


if not os.path.isdir(sys.argv[1]):
    sys.exit(f"{sys.argv[1]} is not a folder")
damaged = 0
for report in reports(sys.argv[1]):
    damaged += not report
    family = parameters = ""
    if report.format:
        about = ferry.inspect(report.path)
        family, parameters = about.model.family or "", f"{about.parameters.parameters:,}"
    problem = report.problems[0].what if report.problems else "sound"
    print(f"{report.path:50} {report.format or '?':12} {family:12} {parameters:>15} "
          f"{report.bytes / 1e9:9.3f} GB  {problem}")  # fmt: skip
sys.exit(damaged > 0)
