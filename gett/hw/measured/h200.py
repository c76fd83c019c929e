"""NVIDIA H200 as it was measured.

Memory over 1 GiB in boxes of 16 KB or 256 rows, copied by 264 blocks. Clocks and factors of main loops are fitted to
28,000 times of 2,700 contractions: TCCG, people's workloads, drawn and common ones.
"""

from gett.hw.device import DeviceModel, L2Rates, LaunchTimes, StoreClocks, TmaClocks
from gett.hw.hopper_rates import HopperLoops, HopperModel, HopperTiles, LoopRates, SideBySide, ThreadCopies
from gett.hw.multistage_rates import MmaSyncRates, MmaSyncTile, MultistageFactors, MultistageModel
from gett.hw.stream_rates import PackingRates, StreamRates, TableRates
from layouts.rates import RunRates

MODEL = DeviceModel(
    name="NVIDIA H200",
    nominal="H200 SXM",
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
        # Of 1.0 to 2.4, forecasts of 2,270 schedules spread the least by it; by 0.5 regrets are 1 to 2 % larger.
        tile_cut_store_tbps=1.4,
        cut_run_bytes=48,
    ),
    launches=LaunchTimes(
        launch_us=2.5,
        fill_us=1.5,
        reduce_l2_passes=5.9,
        blocks_per_us=1640.0,  # of 65,536 to 262,144 blocks of one warp each
    ),
    l2=L2Rates(
        read_tbps=6.9,
        tma_bytes_per_clock=46.0,
        thread_bytes_per_clock=62.0,
        run_end_bytes=80,
        line_share=0.3,
        part_of_line=1.25,
        kept_share=0.4,  # 0.3 and 0.5 forecast 61 pairs of schedules that read lines in parts about as well
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
        element_clocks=4.0,
        stored_row_clocks=2.0,
        cut_row_factor=1.6,
        past_end_rows=6.0,
        multicast_gain=0.7,
    ),
    stores=StoreClocks(
        tile_clocks=200.0,
        access_slots=34.0,
        row_pass_clocks=37.75,
        two_buffers=True,  # 192 kernels of one k-tile take 0.977 of the time of one buffer, 0.79 to 1.07
    ),
    hopper=HopperModel(
        loops=HopperLoops(
            ss=LoopRates(
                port=0.882,
                k_tile_clocks=18.8,
                tile_clocks=603.0,
                alternate_clocks=1610.0,
                missing=0.428,
                behind=1.25,
                two_stages=1.39,
                beside=0.146,
            ),
            gather=LoopRates(
                # 220 schedules with one gathered operand took 1.32 times what they were taken for; 1.08 with these.
                hidden=0.425,
                k_tile_clocks=448.0,
                tile_clocks=2510.0,
                alternate_clocks=11900.0,
                beside=0.000798,
            ),
            rs=LoopRates(
                port=0.884,
            ),
            split=LoopRates(
                copies=0.726,
                step_clocks=219.0,
                k_tile_clocks=210.0,
                tile_clocks=925.0,
                beside=0.158,
            ),
            split_copies=LoopRates(
                copies=0.729,
                step_clocks=243.0,
                k_tile_clocks=40.2,
                tile_clocks=1020.0,
                waits=1.39,
            ),
            tf32=LoopRates(
                products=0.802,
                port=0.918,
                k_tile_clocks=55.6,
                tile_clocks=315.0,
                missing=0.381,
                two_stages=1.61,
                beside=0.109,
            ),
            dmma=LoopRates(
                products=1.1,
                port=1.3,  # tensor maps bring k-tiles beside the reads; forecasts spread less than by 1.0
                hidden=0.078,
                k_tile_clocks=20.0,  # by 10 to 50 the deeper k-tile is taken where forecasts were equal
                load_clocks=3770.0,
                memory_clocks=1370.0,
                two_stages=1.08,
                beside=0.0192,
                resent=0.03,  # by 0.02 to 0.06 choices among 483 contractions' schedules take 0.5 % less
            ),
        ),
        tiles=HopperTiles(
            cluster_n=1.27,
            cluster_m=1.23,
            each_panel=1.14,
            one_panel=0.831,
            padded_share=0.0509,
            map_share=0.000851,
            first_share=0.145,
            together_share=0.00931,
            dram_bytes=96 << 10,
            l2_bytes=137 << 10,
            behind_us=2.49,
            half_lines=0.483,
            reused_clocks=5000.0,
            small_d=0.314,
            short_k=1024,
            across_k=1.2,  # choices of ten products in float64 take 1.025 times the least, by 1.0 1.047
        ),
        threads=ThreadCopies(
            piece_clocks=3.36,
            element_clocks=0.0596,
            warp_clocks=6.01,
            line_clocks=3.06,
        ),
        batches=SideBySide(kept_bytes=12 << 20, at_work=0.95, memory=0.6),
        stream_k_doubles=1.04,  # of 141 schedules; by 1.0 and 1.08 its choices take longer
        stream_k=1.08,  # by 1.08 the choices among what was timed of 178 contractions took the least time
    ),
    multistage=MultistageModel(
        rates=MmaSyncRates(
            tensor_share=0.437,
            float64_share=0.99,
            simt_shares=((1024, 0.62), (512, 0.514), (0, 0.224)),
            # Choices among 326 contractions' schedules in complex128 take 1.034 times the least; by 0.62 alone 1.065.
            double_shares=((1024, 0.85), (512, 0.72), (256, 0.55), (0, 0.4)),
            smem_bytes_per_clock=120.0,
            copy_bytes_per_clock=49.5,
            line_clocks=0.6,  # this, and the two exponents below: see there
            register_stage_clocks=1.69,
            issue_per_clock=2.4,
            overlap=2.09,
            # Choices among 1,153 contractions' schedules in float64 and complex128 take 1.034 times the least; by 49.5
            # bytes a clock, 4 and 4 they took 1.041. Among 787 in float16 and TF32 they take 1.046, for 1.047 by 4.
            memory_overlap=2.5,
            overlap_ahead=3.0,
            kept_bytes=46 << 10,  # 56 of 196 schedules are faster by 3 %, up to twice as fast, and 6 slower
        ),
        # Fitted to 10,800 schedules, as `benchmarks refit` does. Thirteen others did not lower the loss any more.
        tile=MmaSyncTile(
            copy_latency_clocks=1510.0,
            load_latency_clocks=1170.0,
            own_clocks=3.0,  # 98 choices of drawn contractions that it changes take 0.955 of the time
            k_table_factor=1.44,
            one_step_factor=1.2,  # choices among 412 contractions' schedules in complex128 take 1.031 for 1.034
            block_clocks=3960.0,
            launched_clocks=2940.0,
            # By these two, choices among 1,936 schedules of 312 contractions with a short K take 1.056 times the
            # least; by 6.5 and 8, which stood for divisions of each vector's place, 1.068.
            staged_clocks=4.0,
            vector_clocks=5.0,
        ),
        factors=MultistageFactors(
            tensor_cores=1.07,
            elements=1.27,
            multiply_adds=1.16,
            own_copies=1.7,
            few_warps=0.22,
            registers=0.81,
            stream_k=1.08,  # that of the Hopper main loops: no multistage kernel was timed
        ),
    ),
    streams=StreamRates(
        split_blocks=8,
        least_slice_bytes=128 << 10,
        step_bytes=20 << 20,  # what L2 keeps: 38 contractions take 0.968 of the time
        matrix_share=0.92,
        matrix_lanes=64,
        matrix_start_us=2.0,  # 376 schedules of 53 products, as the next
        matrix_rows=1.4,
        matrix_stores=22.0,  # counters on an H100: 39.5 and 40 requests a nanosecond where little else bounds
    ),
    packing=PackingRates(
        # Of 269 contractions whose copies were expected to gain anything, 117 are left, 0.925 of the time by the mean;
        # 78 of them are faster by 3 %, and 18 slower.
        clearly=1.05,
        short_clearly=1.25,
        short_us=25.0,
        # Of 81 contractions with up to 1 GiB 21 are left, of which 13 are faster by 3 %, and 4 slower.
        large_bytes=256 << 20,
        large_clearly=1.06,
        cut_rows=1.2,
        cut_bytes=128,
        # 190 to 530 elements a nanosecond were seen in accesses of 1 to 8 elements.
        read_ps=1.3,
        staged_ps=3.3,
        write_ps=1.8,
        element_ps=0.2,
    ),
    # A circuit, an MPS and a PEPS by these kernels alone took 4.8, 84 and 17 ms.
    tables=TableRates(step_us=0.7, product_us=0.003, products_per_us=2e6, threads=512),
)
