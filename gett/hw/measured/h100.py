"""NVIDIA H100 80GB HBM3: the record of NVIDIA H200, whose multiprocessors it has.

Memory is slower (copies at 3.02 TB/s in place of 4.25), so forecasts of what memory bounds are up to 1.41 times too
short. Choices count for more. Three records were compared on an H100 in 55 cases of TCCG and public programs. The first
choices of this record took 1.004 times the best of the three. Those of a record with H100's own rates took 1.033, and
of one with memory's rates scaled 1.016. Slower memory makes tiles look alike that are not.

Some numbers were fitted later, to times of an H200: what rows cost that threads cut, multiply-adds of float64 by a
warp's outputs, a warp's own instructions, steps of maps, products with a small matrix, two staging buffers, and of
`DmmaTma` shared memory, k-tiles and operands that L2 sends again. No H100 has run what is chosen by them, so those of
before stay.
"""

from dataclasses import replace

from gett.hw.measured import h200

_OF = h200.MODEL
_RATES, _LOOPS = _OF.multistage.rates, _OF.hopper.loops
_DMMA = replace(_LOOPS.dmma, port=1.0, k_tile_clocks=0.0, resent=0.0)

MODEL = replace(
    _OF,
    name="NVIDIA H100 80GB HBM3",
    nominal="",
    memory=replace(_OF.memory, tile_cut_store_tbps=_OF.memory.cut_store_tbps),
    stores=replace(_OF.stores, two_buffers=False),
    hopper=replace(_OF.hopper, loops=replace(_LOOPS, dmma=_DMMA), tiles=replace(_OF.hopper.tiles, across_k=1.0)),
    multistage=replace(
        _OF.multistage,
        rates=replace(_RATES, double_shares=((0, 0.62),)),
        tile=replace(_OF.multistage.tile, own_clocks=0.0),
    ),
    streams=replace(_OF.streams, step_bytes=0, matrix_start_us=0.0, matrix_rows=2.0),
)
