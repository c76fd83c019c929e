// What the headers need of the generated structs ProblemTraits and TileShape, which the traits of main loop and
// epilogue extend, and of Smem, the plan of shared memory.
#pragma once
#include "gett/core/types.cuh"

#ifdef GETT_CONTRACT
namespace gett {
namespace contract {

template <class ProblemTraits>
concept Problem =
    requires { typename ProblemTraits::Params; } &&    // the kernel's argument
    requires { typename ProblemTraits::Element; } &&   // an element of A and B, the wider of the two
    requires { typename ProblemTraits::ElementC; } &&  // an element of C; of D where there is no C
    requires { typename ProblemTraits::ElementD; } &&  // an element of D
    requires { typename ProblemTraits::Acc; };         // an accumulator

template <class TileShape>
concept Tile =
    Problem<TileShape> &&
    requires { TileShape::kBlockM; } &&  // rows of a block's tile, padding included
    requires { TileShape::kBlockN; } &&  // columns of the tile, padding included
    requires { TileShape::kBlockK; } &&  // k of a k-tile
    requires { TileShape::kBoxMN; };     // elements of D that a tile has at most

template <class TileShape>
concept BatchedTile =
    Tile<TileShape> &&
    requires { TileShape::kBatch; };  // batches that a block makes

template <class TileShape>
concept WarpgroupTile =
    Tile<TileShape> &&
    requires { TileShape::kBoxM; } &&                  // rows of the box of one MMA tile
    requires { TileShape::kBoxN; } &&                  // columns of the box
    requires { TileShape::kMmaTilesPerStoreTile; } &&  // MMA tiles that make a store tile
    requires { TileShape::kConsumerWarpgroups; } &&    // warpgroups that multiply
    requires { TileShape::kMmaM; } &&                  // blocks of 64 rows of a warpgroup
    requires { TileShape::kPingPong; } &&              // whether each warpgroup has tiles of its own
    requires { TileShape::kInterleaveRows; } &&        // rows of a group that stays together in a block of 64
    requires { TileShape::kGroupValidRows; } &&        // rows of each kGroupRows that are rows of the box; 0 for all
    requires { TileShape::kGroupRows; };               // rows, padding included, after which padding comes again

// Offsets are bytes from a block's first 1024-byte boundary.
template <class Smem>
concept MultistageSmem =
    requires { Smem::kSize; } &&     // bytes of all
    requires { Smem::kStages; } &&   // the stages
    requires { Smem::kStaging; } &&  // the staged tile of D, where the stages were
    requires { Smem::kKTable; } &&   // the k table
    requires { Smem::kOffsets; };    // offsets of the rows and columns of D

template <class Smem>
concept WarpgroupSmem =
    requires { Smem::kSize; } &&          // bytes of all, with 1024 that align the start
    requires { Smem::kStages; } &&        // the stages; of WgmmaRS those of B
    requires { Smem::kStationary; } &&    // the stationary operand
    requires { Smem::kPlanes; } &&        // planes of B, or B transposed
    requires { Smem::kStaging; } &&       // the staging buffer of D, or the first of two
    requires { Smem::kStagingPitch; } &&  // from one staging buffer to the next
    requires { Smem::kBarriers; } &&      // the mbarriers
    requires { Smem::kGather; };          // rings of gathering warps, or tables of rows of CpAsyncTile

}  // namespace contract
}  // namespace gett
#endif
