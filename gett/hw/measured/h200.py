"""NVIDIA H200 as it was measured.

Memory over 1 GiB in boxes of 16 KB or 256 rows, copied by 264 blocks. Clocks and factors were fitted by hand to kernels
of TCCG, random and odd-sized contractions in float16. Those of mma.sync were fitted to some 1900 schedules of 19 of
them.
"""

from gett.hw.device import DeviceModel, L2Rates, LaunchTimes, MainloopFactors, StoreClocks, TmaClocks
from gett.hw.multistage_rates import MmaSyncRates, MmaSyncTile, MultistageModel
from gett.hw.wgmma_rates import GatherRates, InFlight, PlaneClocks, StationaryFactors, WgmmaModel, WgmmaRates
from layouts.rates import RunRates

MODEL = DeviceModel(
    name="NVIDIA H200",
    arch="sm_90a",
    sm_count=132,
    clock_ghz=1.83,
    memory=RunRates(
        copy_tbps=4.25,
        run_bytes=(16, 32, 64, 128, 256),
        load_tbps=(1.6, 2.4, 2.7, 2.9, 3.1),
        store_tbps=(0.8, 2.8, 3.2, 3.2, 3.8),
        bulk_load_tbps=(2.2, 3.1, 4.0, 4.15, 4.15),
        bulk_store_tbps=(0.7, 2.9, 3.9, 4.1, 4.25),
        cut_store_tbps=0.5,
        cut_run_bytes=48,
    ),
    launches=LaunchTimes(launch_us=2.5, fill_us=1.5, reduce_l2_passes=5.9),
    l2=L2Rates(
        read_tbps=6.9,
        tma_bytes_per_clock=46.0,
        thread_bytes_per_clock=62.0,
        run_end_bytes=80,
        line_share=0.3,
        # 66 clusters are dealt out to the GPCs in turn: four, then rounds of eight, rounds of seven, and two.
        cluster_order=(
            *(0, 1, 2, 3),
            *(4, 8, 16, 24, 32, 40, 48, 57),
            *(5, 9, 17, 25, 33, 41, 49, 58),
            *(6, 10, 18, 26, 34, 42, 50, 59),
            *(7, 11, 19, 27, 35, 43, 51, 60),
            *(12, 20, 28, 36, 44, 52, 61),
            *(13, 21, 29, 37, 45, 53, 62),
            *(14, 22, 30, 38, 46, 54, 63),
            *(15, 23, 31, 39, 47, 55, 64),
            *(56, 65),
        ),
    ),
    tma=TmaClocks(
        row_clocks=2.0,
        memory_row_clocks=2.4,
        stored_row_clocks=2.0,
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
            peak_share=0.86,
            smem_bytes_per_clock=128.0,
            latency_clocks=1100.0,
            cooperative_clocks=500.0,
            cluster_m=1.04,
            cluster_n=1.25,
            short_sum=1.25,
            shallow_share=0.02,
            padded_share=0.1,
            dim_share=0.005,
            late_share=0.3,
            per_warpgroup_a=0.96,
        ),
        stationary=StationaryFactors(whole=0.97, whole_beside_lines=1.01, each_panel=1.15, one_panel=0.83),
        in_flight=InFlight(
            dram_bytes=96 << 10,
            l2_bytes=120 << 10,
            none_share=0.2,
            start_share=0.02,
            two_stages=1.2,
            alternating_three=1.15,
            behind_stores_us=2.6,
            behind_stores_share=0.6,
            half_lines=0.2,
        ),
        gather=GatherRates(piece_clocks=1.5, element_clocks=10 / 64, tile_clocks=3600.0),
        planes=PlaneClocks(step_clocks=330.0, copy_share=0.65),
    ),
    multistage=MultistageModel(
        rates=MmaSyncRates(
            tensor_share=0.77,
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
            launched_clocks=3300.0,
            read_share=0.52,
            staged_clocks=5.2,
        ),
    ),
    mainloops=MainloopFactors(multistage=1.1, multistage_elements=1.35),
)
