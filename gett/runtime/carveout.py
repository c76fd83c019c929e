"""How an SM's memory is divided between shared memory and the first cache for one kernel (CUDA: the carveout).

The driver gives shared memory to as many blocks as may be resident, and the first cache what is left. Kernels whose
copies fetch parts of sectors are faster with fewer blocks and more of that cache.
"""

from __future__ import annotations

import math

from gett.codegen.records import Launch
from gett.hw.archs import KIB, ArchFacts


def carveout(launch: Launch, registers: int, facts: ArchFacts) -> int:
    """Percent of an SM's shared memory that a launch's kernel should have.

    It has room for the blocks that may be resident and for those that there are, as far as that leaves the launch's
    part of the first cache; for one block in any case.

    Args:
        launch: One that needs some of the first cache.
        registers: Of a thread.
        facts: The GPU's.
    """
    block, blocks = launch.smem_bytes + KIB, -(-math.prod(launch.grid) // facts.sm_count)
    resident = min(blocks, facts.resident_blocks(registers, math.prod(launch.block), launch.smem_bytes))
    size = max(facts.smem_for(block), facts.smem_for(resident * block, launch.cache_bytes))
    return 100 * size // facts.smem_per_sm  # rounded down: the driver takes the next size that is no smaller
