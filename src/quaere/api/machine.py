"""What this machine has.

read_memory() -> (23.4, 9.2)
"""

import os
from contextlib import suppress
from pathlib import Path

_MEMORY_FILE = Path("/proc/meminfo")


def read_memory() -> tuple[float, float] | None:
    """The memory of this machine and how much of it is free, in GiB; None if the system does not say.

    On Linux the page cache, which is dropped when memory is needed, counts as free.
    """
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total, free = (os.sysconf(name) * page / 2**30 for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return None
    with suppress(OSError, IndexError):
        free = int(_MEMORY_FILE.read_text().split("MemAvailable:")[1].split()[0]) / 2**20
    return total, free
