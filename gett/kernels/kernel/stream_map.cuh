// The kernel without sums: permutations, diagonals, broadcasts, Hadamard and outer products. Each element of D is one
// product.
//
// A block makes one tile and writes it in D's order. An operand whose own order is another one is first read in that
// order, in whole L2 lines, and transposed through shared memory. The vectors of a step may be whole rows of the tile's
// last dimension (kAdvance). A thread then works out its places for one step, and those of the others are constant
// distances further on.
#pragma once
#include "gett/contract/streams.cuh"
#include "gett/epilogue/epilogue_op.cuh"
#include "gett/epilogue/linear_combination.cuh"
#include "gett/loader/stream.cuh"
#include "gett/ptx/opaque.cuh"
#include "gett/ptx/warpgroup.cuh"

namespace gett {

template <class Traits, class Index>
  GETT_REQUIRES(contract::StreamMap<Traits, Index>)
struct StreamMap {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef typename Traits::ElementC ElementC;
  typedef RoleA<Traits, Index> A;
  typedef RoleB<Traits, Index> B;
  typedef RoleC<Traits, Index> C;
  static constexpr int kV = Traits::kVec, kThreads = Traits::kThreads;
  static constexpr int kUnroll = kSparing ? (Traits::kUnroll + 1) / 2 : Traits::kUnroll;
  static constexpr int kStep = Traits::kStep;  // vectors of all threads, of which a few may have none
  static constexpr bool kAdvance = Traits::kAdvance;

  template <class Role> struct Image {
    static constexpr int kBytes =
        !Role::LoaderTraits::kViaSmem
            ? 0
            : (Role::LoaderTraits::kImage * int(sizeof(typename Role::Element)) + 127) / 128 * 128;
  };

  static constexpr int kImageB = Image<A>::kBytes, kImageC = kImageB + Image<B>::kBytes;
  static constexpr bool kStaged = kImageC + Image<C>::kBytes > 0;
  static constexpr int kTotal = Traits::kBox / kV;

  // What a thread has read for its vectors of one step, of which some do not exist.
  struct Step {
    Vec<typename A::Element, kV> a[kUnroll];
    Vec<typename B::Element, kV> b[Traits::kHasB ? kUnroll : 1];
    Vec<ElementC, kV> c[Traits::kSourceC == kSourceVector ? kUnroll : 1];
    bool ok[kUnroll];
  };

  // Reads one operand's tile in its own order and leaves its image in shared memory. The image has D's order without
  // the dimensions along which the operand does not vary.
  template <class Role, class Tile>
  static GETT_DEVICE void stage(const Params& p, const Tile& t, char* image, int thread) {
    if constexpr (Role::LoaderTraits::kViaSmem) {
      typedef typename Role::Element Element;
      typedef typename Role::LoaderTraits LoaderTraits;
      constexpr int kW = LoaderTraits::kWidth, kTotal = LoaderTraits::kImage / kW;
      constexpr int kPer = (kTotal + kThreads - 1) / kThreads;
      constexpr int kMost = kSparing ? 1 : 4, kAtOnce = kPer < kMost ? kPer : kMost;
      const Element* const from = Role::base(p) + Role::origin(t);
#pragma unroll 1
      for (int first = thread; first < kTotal; first += kAtOnce * kThreads) {
        Vec<Element, kW> held[kAtOnce];
        int local[kAtOnce];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const int v = first + u * kThreads;
          local[u] = Role::tile_index(p, v * kW);
          const bool ok = (kTotal % (kAtOnce * kThreads) == 0 || v < kTotal) && Index::o_ok(p, t, local[u]);
          if (ok) held[u] = Vec<Element, kW>::load(from + Role::at_o(p, t, local[u]));
          if (!ok) local[u] = -1;
        }
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          if (local[u] < 0) continue;
          const int at = Role::image(p, local[u]);
#pragma unroll
          for (int j = 0; j < kW; ++j) {
            int to;
            if constexpr (LoaderTraits::kStep > 0) {
              to = at + j * LoaderTraits::kStep;
            } else {
              to = Role::image(p, Role::tile_index(p, (first + u * kThreads) * kW + j));
            }
            *reinterpret_cast<Element*>(image + swizzled_at<LoaderTraits>(to * int(sizeof(Element)))) = held[u].x[j];
          }
        }
      }
    }
  }

  // kV elements in D's order, `u` steps behind vector `first`, from shared memory or from the operand itself.
  template <class Role, class Tile>
  static GETT_DEVICE void fetch(const Params& p, const Tile& t, const char* image, int first, int u,
                                Vec<typename Role::Element, kV>& x) {
    const int local = (kAdvance ? first : first + u * kStep) * kV;
    typedef typename Role::Element Element;
    if constexpr (Role::LoaderTraits::kViaSmem) {
      typedef typename Role::LoaderTraits LoaderTraits;
      constexpr int kN = LoaderTraits::kImageWhole ? kV : 1;
#pragma unroll
      for (int j = 0; j < kV; j += kN) {
        const int further = kAdvance ? u * LoaderTraits::kImageAdvance : 0;
        const int at = (Role::image(p, local + j) + further) * int(sizeof(Element));
        const auto part = Vec<Element, kN>::load(image + swizzled_at<LoaderTraits>(at));
#pragma unroll
        for (int i = 0; i < kN; ++i) x.x[j + i] = part.x[i];
      }
    } else {
      const Element* from = Role::base(p) + Role::origin(t) + Role::at_o(p, t, local);
      if constexpr (kAdvance) from += u * Role::advance(p);
      gett::read<Role, kV>(p, from, x);
    }
  }
  // Reads the operands that are in shared memory, or those that are not.
  template <bool kImages, class Tile>
  static GETT_DEVICE void read(const Params& p, const Tile& t, const char* smem, int first, bool with_c, Step& step) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int v = first + u * kStep;
      if constexpr (!kImages) {
        step.ok[u] = (kTotal % (kUnroll * kStep) == 0 || v < kTotal) && Index::o_ok(p, t, v * kV);
      }
      if (!step.ok[u]) continue;
      if constexpr (A::LoaderTraits::kViaSmem == kImages) fetch<A>(p, t, smem, first, u, step.a[u]);
      if constexpr (Traits::kHasB && B::LoaderTraits::kViaSmem == kImages) {
        fetch<B>(p, t, smem + kImageB, first, u, step.b[u]);
      }
      if constexpr (Traits::kSourceC == kSourceVector && C::LoaderTraits::kViaSmem == kImages) {
        if (with_c) fetch<C>(p, t, smem + kImageC, first, u, step.c[u]);
      }
    }
  }
  // Where D's vector lies, from its tile on.
  template <class Tile> static GETT_DEVICE long long at_d(const Params& p, const Tile& t, int first, int u) {
    if constexpr (kAdvance) return Index::o_d(p, t, first * kV) + u * Index::advance_d(p);
    return Index::o_d(p, t, (first + u * kStep) * kV);
  }

  static GETT_DEVICE void run(const Params& p) {
    griddepcontrol_wait();
    run(p, int(blockIdx.x));
  }

  // One tile, by its number.
  static GETT_DEVICE void run(const Params& p, int tile) {
    extern __shared__ __align__(128) char smem[];
    const int thread = threadIdx.x;
    const auto t = Index::o_tile(p, tile);
    const LinearCombination<Traits> op(p);
    const OutputOp<Traits, Index, decltype(t)> function{p, t};
    const bool with_c = op.reads_source();
    const bool works = kStep >= kThreads || thread < kStep;
    Step step;
    // What comes from memory itself is asked for before the barrier, so that both ways take the time of one.
    if (works) read<false>(p, t, smem, thread, with_c, step);
    stage<A>(p, t, smem, thread);
    if constexpr (Traits::kHasB) stage<B>(p, t, smem + kImageB, thread);
    if constexpr (Traits::kSourceC == kSourceVector) {
      if (with_c) stage<C>(p, t, smem + kImageC, thread);
    }
    if constexpr (kStaged) __syncthreads();
    if (!works) return;

    int first = thread;
    while (true) {
      read<true>(p, t, smem, first, with_c, step);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (!step.ok[u]) continue;
        Vec<typename Traits::ElementD, kV> out;
#pragma unroll
        for (int j = 0; j < kV; ++j) {
          if constexpr (Traits::kPlain) {
            out.x[j] = step.a[u].x[j];
            continue;
          }
          Acc x;
          if constexpr (Traits::kHasB) {
            x = product<Acc>(as_factor<Acc>(step.a[u].x[j]), as_factor<Acc>(step.b[u].x[j]));
          } else {
            x = convert<Acc>(step.a[u].x[j]);
          }
          const int o = (first + u * kStep) * kV + j;
          out.x[j] = op(x, &step.c[u].x[j], [&](Acc sum) { return function(o, sum); });
        }
        // Sparing, strides are read again: there are many where a tile has many modes.
        auto* const to = p.d + t.d + at_d(kSparing ? hidden(p) : p, t, first, u);
        if constexpr (Traits::kStoreOnce) out.store_once(to);
        else out.store_global(to);
      }
      if (kTotal <= kUnroll * kStep || (first += kUnroll * kStep) >= kTotal) break;
      read<false>(p, t, smem, first, with_c, step);
    }
  }
};

}  // namespace gett
