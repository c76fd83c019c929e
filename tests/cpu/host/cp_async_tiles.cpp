// Brings k-tiles of A and B in as the copying warps do, thread after thread. Reads the parameters and both operands;
// writes the bytes of both tiles.
using namespace gett;
typedef MainloopTraits::Element Element;
template <bool kIsA, int kGrain> struct Which {
  typedef typename LoaderTraitsOf<MainloopTraits, kIsA>::type Loader;
  typedef SmemOperand<Loader, Loader::kRows, kGrain, MainloopTraits::kBlockK, sizeof(Element)> Tile;
  static constexpr bool kCopies = Loader::kKind == kLoaderCpAsyncTile;
  typedef CpAsyncTile<MainloopTraits, Index, Tile, kIsA, kCopies> type;
};
template <class Mine> void bring(const Params& p, const TileId& id, int kt, uint32 table, uint32 tile) {
  if constexpr (Mine::kCopies) {
    const auto k = Index::k_tile(p, kt);
    const bool whole = Index::k_whole(p, k);
    uint32 rows = 0;
    for (int i = 0; i < 32; ++i) rows |= uint32(Mine::is_valid(p, k, i)) << i;
    for (int thread = 0; thread < Mine::kThreads; ++thread) Mine::tabulate(p, id, table, thread);
    for (int thread = 0; thread < Mine::kThreads; ++thread) {
      Mine x(table, thread);
      x.locate(p, id, table, thread);
      if (whole) {
        x.template copy<true>(x.source(k), tile, ~0u, thread);
      } else {
        const bool is = Mine::is_valid(p, k, Mine::inner(thread));
        x.template copy<false>(x.source(k), tile, Mine::kMajorK ? (is ? ~0u : 0) : rows, thread);
      }
    }
  }
}
int main() {
  Params p;
  int sizes[2];
  if (fread(&p, sizeof p, 1, stdin) != 1 || fread(sizes, sizeof sizes, 1, stdin) != 1) return 2;
  Element *a = (Element*)malloc(sizes[0] * sizeof(Element)), *b = (Element*)malloc(sizes[1] * sizeof(Element));
  if (fread(a, sizeof(Element), sizes[0], stdin) != sizes[0] || fread(b, sizeof(Element), sizes[1], stdin) != sizes[1])
    return 3;
  p.a = a;
  p.b = b;
  int job[4];
  while (fread(job, sizeof job, 1, stdin) == 1) {
    memset(shared_memory, 0xee, sizeof shared_memory);
    const TileId id = {job[0], job[1], job[2], 0};
    bring<Which<true, 64>::type>(p, id, job[3], 0, TILES);
    bring<Which<false, 8>::type>(p, id, job[3], 0, TILES * 2);
    fwrite(shared_memory + TILES, 1, TILES, stdout);
    fwrite(shared_memory + 2 * TILES, 1, TILES, stdout);
  }
  free(a);
  free(b);
}
