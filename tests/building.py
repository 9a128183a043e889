"""What several workers of one test run need, and one of them builds."""

import os
import pickle
import shutil

from filelock import FileLock


def build_once(factory, name, build):
    """What `build(folder)` returned for whichever worker came first; the others wait for it and use the same folder.

    build_once(tmp_path_factory, "village", village.build) -> (index, model)
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # each worker's own folder lies in one for all of them
    done = root / f"{name}.pickle"
    with FileLock(root / f"{name}.lock"):
        if not done.exists():
            folder = root / name
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed half-way
            folder.mkdir()
            done.write_bytes(pickle.dumps(build(folder)))
    return pickle.loads(done.read_bytes())
