// What the tile schedulers (scheduler/one_tile.cuh, scheduler/persistent.cuh) need of the generated SchedulerTraits.
#pragma once
#include "gett/contract/params.cuh"
#include "gett/core/types.cuh"

#ifdef GETT_CONTRACT
namespace gett {
namespace contract {

template <class SchedulerTraits>
concept OneTile =
    requires { SchedulerTraits::kSplit; } &&           // whether K is split
    requires { SchedulerTraits::kPartialsAlongM; };    // whether partial tiles run along M, as D does; else along N

// Of all persistent tile schedulers.
template <class SchedulerTraits>
concept Clusters =
    requires { SchedulerTraits::kSplit; } &&         // whether K is split
    requires { SchedulerTraits::kPartialsAlongM; } &&  // whether partial tiles run along M, as D does; else along N
    requires { SchedulerTraits::kClusterM; } &&      // blocks of a cluster along M
    requires { SchedulerTraits::kClusterN; } &&      // blocks of a cluster along N
    requires { SchedulerTraits::kTileDistance; };    // tiles between those of a cluster; 1 but for an exchange

template <class SchedulerTraits>
concept PersistentRaster =
    Clusters<SchedulerTraits> &&
    requires { SchedulerTraits::kOrderedClusters; } &&  // clusters of the grid that start in the device's order, or 0
    (SchedulerTraits::kOrderedClusters == 0 ||
     requires(int cluster) { SchedulerTraits::cluster_order(cluster); });  // the place of a cluster in that order

template <class SchedulerTraits>
concept PersistentBatches =
    PersistentRaster<SchedulerTraits> &&
    requires { SchedulerTraits::kGroupL; };  // batches that are visited together

template <class SchedulerTraits>
concept StreamK =
    Clusters<SchedulerTraits> &&
    requires { typename SchedulerTraits::Params; } &&  // the argument
    StreamKParams<typename SchedulerTraits::Params>;

// Of the tile schedulers that read the ends of problems.
template <class SchedulerTraits>
concept Ragged =
    Clusters<SchedulerTraits> &&
    requires { typename SchedulerTraits::Params; } &&  // the argument
    RaggedTileParams<typename SchedulerTraits::Params> &&
    requires { SchedulerTraits::kRaggedRows; } &&      // rows of a tile along the ragged mode
    requires { SchedulerTraits::kRaggedTable; };       // problems for which shared memory has room

template <class SchedulerTraits>
concept PersistentRagged =
    Ragged<SchedulerTraits> &&
    requires { SchedulerTraits::kRaggedM; };    // whether the ragged mode is in M; else it is in N

template <class SchedulerTraits>
concept PersistentRaggedSums = Ragged<SchedulerTraits> && RaggedSumParams<typename SchedulerTraits::Params>;

template <class SchedulerTraits>
concept PersistentPanel =
    Clusters<SchedulerTraits> &&
    requires { SchedulerTraits::kPanelA; } &&    // whether A is stationary, so that a panel is a row of tiles; else B
    requires { SchedulerTraits::kOnePanel; };    // whether the tiles of a cluster are in one panel

}  // namespace contract
}  // namespace gett
#endif
