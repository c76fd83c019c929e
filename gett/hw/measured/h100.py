"""NVIDIA H100 80GB HBM3 as it was measured.

By `python -m benchmarks calibrate` on 2026-11-22, commit 8d4080c+.
Driver 580.159.04; clocks.max.sm 1980 MHz, clocks.mem 2619 MHz, power.limit 700 W, temperature.gpu 43.
Measured (times the fitted values of NVIDIA H200):
  memory.copy_tbps
  memory.load_tbps
  memory.store_tbps
  l2.read_tbps
  launches.launch_us
  memory.bulk_load_tbps
  memory.bulk_store_tbps
  memory.cut_store_tbps
  l2.tma_bytes_per_clock
  tma.row_clocks
  tma.memory_row_clocks
  tma.stored_row_clocks
  multistage.rates.tensor_share
  wgmma.loop.peak_share
  wgmma.loop.cluster_m
  wgmma.loop.cluster_n
  mainloops.gather
  mainloops.multistage
  mainloops.multistage_elements
All else is NVIDIA H200's.
"""

from gett.hw.device import (
    DeviceModel,
    GatherRates,
    InFlight,
    L2Rates,
    LaunchTimes,
    MainloopFactors,
    MmaSyncRates,
    MmaSyncTile,
    MultistageModel,
    PlaneClocks,
    StationaryFactors,
    StoreClocks,
    TmaClocks,
    WgmmaModel,
    WgmmaRates,
)
from layouts.rates import RunRates

MODEL = DeviceModel(
    name="NVIDIA H100 80GB HBM3",
    arch="sm_90a",
    sm_count=132,
    clock_ghz=1.83,
    memory=RunRates(
        copy_tbps=3.01,
        run_bytes=(16, 32, 64, 128, 256),
        load_tbps=(1.28, 1.93, 2.14, 2.17, 2.25),
        store_tbps=(0.661, 2.33, 2.58, 2.44, 2.73),
        bulk_load_tbps=(1.72, 2.52, 3.22, 3.16, 3.02),
        bulk_store_tbps=(0.571, 2.46, 3.26, 3.16, 3.14),
        cut_store_tbps=0.407,
        cut_run_bytes=48,
    ),
    launches=LaunchTimes(
        launch_us=2.88,
        fill_us=1.5,
        reduce_l2_passes=5.9,
    ),
    l2=L2Rates(
        read_tbps=6.1,
        tma_bytes_per_clock=46.0,
        thread_bytes_per_clock=62.0,
        run_end_bytes=80,
        line_share=0.3,
    ),
    tma=TmaClocks(
        row_clocks=2.0,
        memory_row_clocks=2.61,
        stored_row_clocks=2.3,
        cut_row_factor=1.6,
        past_end_rows=6.0,
        multicast_gain=0.7,
    ),
    stores=StoreClocks(
        tile_clocks=200.0,
        access_slots=34.0,
        row_pass_clocks=37.75,
    ),
    wgmma=WgmmaModel(
        loop=WgmmaRates(
            peak_share=0.855,
            smem_bytes_per_clock=128.0,
            latency_clocks=1100.0,
            cooperative_clocks=500.0,
            cluster_m=1.21,
            cluster_n=1.21,
            short_sum=1.25,
            shallow_share=0.02,
            padded_share=0.1,
            dim_share=0.005,
            late_share=0.3,
            per_warpgroup_a=0.96,
        ),
        stationary=StationaryFactors(
            whole=0.97,
            whole_beside_lines=1.01,
            each_panel=1.15,
            one_panel=0.83,
        ),
        in_flight=InFlight(
            dram_bytes=98304,
            l2_bytes=122880,
            none_share=0.2,
            start_share=0.02,
            two_stages=1.2,
            behind_stores_us=2.6,
            behind_stores_share=0.6,
            half_lines=0.2,
        ),
        gather=GatherRates(
            piece_clocks=2.4,
            element_clocks=0.1171875,
            tile_clocks=1500.0,
        ),
        planes=PlaneClocks(step_clocks=330.0, copy_share=0.65),
    ),
    multistage=MultistageModel(
        rates=MmaSyncRates(
            tensor_share=0.773,
            float64_share=0.9,
            simt_shares=((2048, 0.75), (1024, 0.6), (512, 0.45), (0, 0.3)),
            smem_bytes_per_clock=98.0,
            copy_bytes_per_clock=((16, 103.0), (8, 62.0), (4, 21.0)),
            register_stage_clocks=2.4,
            issue_per_clock=3.7,
            overlap=2.3,
        ),
        tile=MmaSyncTile(
            sync_clocks=68.0,
            copy_latency_clocks=1450.0,
            load_latency_clocks=565.0,
            access_clocks=26.0,
            product_clocks=12.0,
            short_loop_warps=20.0,
            k_table_factor=1.36,
            block_clocks=5700.0,
            read_share=0.52,
            staged_clocks=5.2,
        ),
    ),
    mainloops=MainloopFactors(
        multistage=0.942,
        multistage_elements=0.744,
        wgmma_rs=1.0,
        gather=0.909,
    ),
)
