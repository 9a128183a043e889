"""The step of the last checkpoint of an iteration, for `quaere eval --run RUN --checkpoint STEP`.

python benchmarks/last_checkpoint.py RUN --iteration 0
"""

import argparse
from pathlib import Path

from quaere.runs.checkpoints import find_checkpoints


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--iteration", type=int, required=True)
    args = parser.parse_args()
    steps = [one.step for one in find_checkpoints(args.run / "checkpoints") if one.state["iteration"] == args.iteration]
    if not steps:
        parser.exit(2, f"{args.run} has no checkpoint of iteration {args.iteration}\n")
    print(max(steps))


if __name__ == "__main__":
    main()
