// Brings k-tiles of A and B in as the gathering warps do, lane after lane. Reads the parameters, both operands and the
// numbers of tiles; writes how many copies asked where the tensor ends, and the bytes of both tiles.
using namespace gett;
template <bool kIsA, class Mine> void bring(const Params& p, int m, int n, int l, int kt, uint32 tile) {
  static int table[1 << 16];
  const TileId id = {m, n, l, 0};
  const auto k = Index::k_tile(p, kt);
  const bool whole = Index::k_whole(p, k);
  for (int warp = 0; warp < Mine::kWarps; ++warp) {
    long long origin = 0;
    for (int lane = 0; lane < 32; ++lane) origin = Mine::tabulate(p, id, table, warp, lane);
    const char* from = Mine::base(p) + origin + (kIsA ? k.a : k.b) * 2;
    static Mine lanes[32];
    int top = 0;
    for (int lane = 0; lane < 32; ++lane) {
      lanes[lane].plan_loads(table, lane);
      top = max(top, lanes[lane].top_);
    }
    for (int lane = 0; lane < 32; ++lane) {
      lanes[lane].top_ = top;  // the warp's, as its lanes agree
      lanes[lane].load(from, Mine::end(p), 0, lane);
    }
    for (int lane = 0; lane < 32; ++lane) {
      Mine x;
      x.plan_stores(table, lane);
      x.store(p, k, whole, from, 0, tile, warp, lane);
    }
  }
}
template <bool kTransposed, bool kIsA> struct Which { typedef GatherPieces<MainloopTraits, Index, kIsA> type; };
template <bool kIsA> struct Which<true, kIsA> { typedef TransposedPieces<MainloopTraits, Index, kIsA> type; };
typedef Which<(MainloopTraits::LoaderTraitsA::kTransposeK > 0), true>::type MineA;
typedef Which<(MainloopTraits::LoaderTraitsB::kTransposeK > 0), false>::type MineB;
int main() {
  Params p;
  if (fread(&p, sizeof p, 1, stdin) != 1) return 2;
  const int size_a = p.cosize_a, size_b = p.cosize_b;
  uint16 *a = (uint16*)malloc(size_a * 2), *b = (uint16*)malloc(size_b * 2);  // to the last byte
  if (fread(a, 2, size_a, stdin) != size_a || fread(b, 2, size_b, stdin) != size_b) return 3;
  p.a = (const half_t*)a;
  p.b = (const half_t*)b;
  int job[4];
  while (fread(job, sizeof job, 1, stdin) == 1) {
    memset(shared_memory, 0xee, sizeof shared_memory);
    int careful[2];  // copies of A and of B that asked where the tensor ends
    careful_copies = 0;
    bring<true, MineA>(p, job[0], job[1], job[2], job[3], TILES);
    careful[0] = careful_copies;
    bring<false, MineB>(p, job[0], job[1], job[2], job[3], TILES * 2);
    careful[1] = careful_copies - careful[0];
    fwrite(careful, 1, sizeof careful, stdout);
    fwrite(shared_memory + TILES, 1, TILES, stdout);
    fwrite(shared_memory + 2 * TILES, 1, TILES, stdout);
  }
  free(a);
  free(b);
}
