"""Small contractions of the catalogue of kernels, by the part that they are chosen for. Data only."""

from __future__ import annotations

from tests.cases import DENSE, Case, Layout

# Operands by tensor map, and clusters: odd numbers of tiles, batches, a long K that is split, rows that come in no
# eights (copies of their own), rows of 32 bytes.
TMA = (
    Case("odd-tiles", "mk,kn->mn", {"m": 328, "k": 200, "n": 408}),
    Case("k-major", "mk,nk->nm", {"m": 136, "k": 328, "n": 200}),
    Case("batched", "bmk,bkn->bmn", {"b": 3, "m": 200, "k": 72, "n": 136}),
    Case("long-k", "km,kn->mn", {"m": 72, "k": 4096, "n": 88}),
    Case("uneven-rows", "njmi,kmln->lkji", {"i": 32, "j": 6, "k": 21, "l": 12, "m": 6, "n": 96}),
    Case("one-tile", "mk,kn->mn", {"m": 64, "k": 512, "n": 64}),
)
# A K that is no multiple of 16: both majors, swizzles of all spans and none, atoms with rows to spare, several k-tiles,
# K of two modes, batches, edges that hang over.
K_RESIDUE = (
    Case("mixed-24", "amji,cbkm->kjicba", {"a": 24, "m": 24, "j": 6, "i": 40, "c": 8, "b": 12, "k": 30}),
    Case("pieces-24", "bki,cak->icba", {"b": 7, "i": 24, "c": 32, "a": 33, "k": 24}),
    Case("long-pieces-24", "cmi,bam->icba", {"c": 8, "m": 24, "i": 40, "b": 64, "a": 20}),
    Case("spare-36", "cabkd,kj->dcjba", {"c": 2, "a": 48, "b": 5, "k": 36, "d": 48, "j": 24}),
    Case("thin-84", "abkc,kj->cbja", {"a": 32, "b": 18, "k": 84, "c": 40, "j": 24}),
    Case("k-major-40", "mk,nk->mn", {"m": 200, "n": 136, "k": 40}),
    Case("k-major-56", "bmk,bnk->bmn", {"b": 3, "m": 72, "n": 200, "k": 56}),
    Case("k-major-8", "mk,nk->mn", {"m": 328, "n": 136, "k": 8}),
    Case("three-tiles-72", "mk,kn->mn", {"m": 200, "n": 264, "k": 72}),
    Case("two-modes-6x14", "lkm,kln->mn", {"k": 6, "l": 14, "m": 136, "n": 200}),
)
# An operand that stays whole, in either role: K-major and MN-major, in slabs, in copies of their own, in rows of a
# wider swizzle; K that ends inside a tile; several batches that share an operand.
STATIONARY = (
    Case("rows", "abk,kj->bja", {"a": 12, "b": 176, "k": 136, "j": 24}),
    Case("slabs", "ap,srqp->srqa", {"a": 96, "p": 96, "s": 3, "r": 4, "q": 84}),
    Case("uneven", "bq,srqa->srba", {"b": 84, "q": 96, "s": 4, "r": 5, "a": 96}),
    Case("ragged-k", "dabkc,kj->cdbja", {"d": 4, "a": 48, "b": 3, "k": 36, "c": 48, "j": 24}),
    Case("k-major", "akdbc,jk->cjbda", {"a": 48, "k": 48, "d": 2, "b": 3, "c": 96, "j": 24}),
    Case("cut", "cr,srba->scba", {"c": 84, "r": 96, "s": 3, "b": 7, "a": 128}),
)
# Panels that blocks make one after the other: either role, residues and full k-tiles, two k-tiles, batches, ragged
# panels, rows of a wider swizzle, panels that blocks share.
EACH_PANEL = (
    Case("short", "amji,cbkm->kjicba", {"a": 24, "m": 24, "j": 6, "i": 40, "c": 8, "b": 12, "k": 30}),
    Case("full", "bmji,cakm->kjicba", {"b": 24, "m": 32, "j": 12, "i": 40, "c": 8, "a": 24, "k": 10}),
    Case("two", "mk,nk->mn", {"m": 1400, "n": 1100, "k": 88}),
    Case("batched", "lmk,lnk->lmn", {"l": 3, "m": 1100, "n": 840, "k": 40}),
    Case("transposed", "km,kn->nm", {"m": 1096, "n": 1032, "k": 48}),
)
# Blocks that keep to one panel: either role, rows along K and along tiles, K and tiles that end early, two to four
# panels, permuted modes.
ONE_PANEL = (
    Case("rows", "mk,kn->mn", {"m": 1100, "n": 248, "k": 200}),
    Case("transposed", "km,kn->nm", {"m": 1400, "n": 376, "k": 216}),
    Case("deep", "mk,nk->mn", {"m": 1300, "n": 256, "k": 392}),
    Case("modes", "lki,jl->kji", {"i": 56, "j": 384, "k": 30, "l": 208}),
    Case("four", "mk,nk->nm", {"m": 960, "n": 512, "k": 192}),
)
# A's rows along one free mode and D's along another: atoms with rows to spare, atoms of 64 and of 32 rows; two to six
# MMA tiles; K that ends inside a tile; B that stays or does not, of columns that come in no eights; batches.
MMA_TILES = (
    Case("spare", "cabkd,kj->dcjba", {"c": 2, "a": 48, "b": 3, "k": 36, "d": 48, "j": 24}),
    Case("k-major", "akdbc,jk->cjbda", {"a": 48, "k": 48, "d": 2, "b": 3, "c": 48, "j": 24}),
    Case("thirds", "akbc,jk->cjba", {"a": 96, "k": 40, "b": 3, "c": 96, "j": 24}),
    Case("halves", "abkc,kj->cbja", {"a": 32, "k": 84, "b": 5, "c": 64, "j": 24}),
    Case("columns", "akbc,jk->cjba", {"a": 64, "k": 56, "b": 2, "c": 64, "j": 20}),
    Case("batched", "lakbc,ljk->lcjba", {"l": 3, "a": 32, "k": 48, "b": 3, "c": 64, "j": 24}),
)
# One tile a block: both majors, ragged tiles and k-tiles, D's order transposed, short rows, batches, clusters with a
# block to spare.
REUSE = (
    Case("rows", "mk,nk->mn", {"m": 248, "k": 1000, "n": 376}),
    Case("transposed", "km,kn->nm", {"m": 256, "k": 712, "n": 520}),
    Case("short", "adb,cd->cba", {"a": 16, "d": 640, "b": 24, "c": 256}),
    Case("batched", "lmk,lkn->lmn", {"l": 2, "m": 120, "k": 840, "n": 248}),
    Case("surplus", "mk,kn->mn", {"m": 328, "k": 648, "n": 248}),
)
# Long sums in wide tiles: parts of N's one dimension or of its last one, of which a part may have a single index; both
# orders of D, ragged tiles, batches.
SUBTILED = (
    Case("rows", "mk,kn->mn", {"m": 520, "k": 1000, "n": 1016}),
    Case("columns", "mk,nk->nm", {"m": 384, "k": 776, "n": 776}),
    Case("modes", "lki,jl->kji", {"i": 120, "j": 120, "k": 10, "l": 640}),
    Case("four", "njmi,mknl->lkji", {"i": 32, "j": 12, "k": 12, "l": 32, "m": 28, "n": 28}),
    Case("batched", "lmk,lnk->lmn", {"l": 3, "m": 200, "k": 520, "n": 512}),
)
# The unit mode of an operand (b) and D's (a) in one group, and rows of D too short for both: whole tiles, tiles and
# k-tiles that hang over the edge in every mode, batches, a short way from one tile of the two to the other.
EXCHANGE = (
    Case("whole", "adb,cd->cba", {"a": 32, "b": 32, "c": 512, "d": 256}),
    Case("ragged", "adb,cd->cba", {"a": 48, "b": 24, "c": 456, "d": 200}),
    Case("batched", "ladb,lcd->lcba", {"l": 3, "a": 16, "b": 40, "c": 264, "d": 136}),
    Case("neighbours", "cd,adb->cba", {"a": 64, "b": 16, "c": 504, "d": 512}),
)
# Many tiles of a block. Of one k-tile D is staged in two buffers. Where one tile has all columns, or all rows, stages
# keep the operand that has them, beside two k-tiles, too; batches read another one.
KEPT = (
    Case("narrow", "mk,kn->mn", {"m": 4104, "k": 16, "n": 40}),
    Case("flat", "km,nk->nm", {"m": 24, "k": 16, "n": 4136}),
    Case("wide", "mk,nk->mn", {"m": 1544, "k": 16, "n": 520}),
    Case("batched", "lmk,lkn->lmn", {"l": 3, "m": 1032, "k": 16, "n": 72}),
    Case("two-k-tiles", "mk,kn->mn", {"m": 4104, "k": 64, "n": 48}),
    Case("modes", "amk,kbn->manb", {"a": 9, "m": 520, "k": 16, "b": 3, "n": 16}),
)
# Every copy from registers to the staged tile, atoms with rows to spare, and single elements.
STAGED = (
    Case("stsm_t-slabs", "cabk,kj->cjba", {"c": 5, "a": 96, "b": 7, "k": 96, "j": 24}),
    Case("vec_m", "akbc,jk->cjba", {"c": 96, "a": 64, "b": 3, "k": 40, "j": 24}),
    Case("vec_m-ragged", "akbc,jk->cjba", {"c": 40, "a": 48, "b": 3, "k": 56, "j": 24}),
    Case("spare-rows", "cabkd,kj->dcjba", {"c": 3, "a": 48, "b": 5, "k": 36, "d": 48, "j": 24}),
    Case("vec_n", "amji,cbkm->kjicba", {"a": 24, "m": 24, "j": 4, "i": 24, "c": 5, "b": 12, "k": 6}),
    Case("stsm-cut", "bmji,cakm->kjicba", {"b": 20, "m": 24, "j": 4, "i": 24, "c": 5, "a": 24, "k": 3}),
    Case("stsm", "ap,srqp->srqa", {"a": 96, "p": 96, "s": 4, "r": 9, "q": 84}),
)
# C by tensor map with every copy from registers; C as D, with its slow modes in another order, with gaps between its
# rows, the same for all batches; store tiles of several MMA tiles. All with boxes that hang over the edge.
TMA_SOURCE: tuple[tuple[Case, Layout], ...] = (
    (Case("stsm", "ap,srqp->srqa", {"a": 96, "p": 96, "s": 4, "r": 9, "q": 84}), Layout((1, 0, 2, 3))),
    (Case("stsm-cut", "bmji,cakm->kjicba", {"b": 20, "m": 24, "j": 4, "i": 24, "c": 5, "a": 24, "k": 3}), DENSE),
    (Case("stsm_t", "cabk,kj->cjba", {"c": 5, "a": 96, "b": 7, "k": 96, "j": 24}), Layout((2, 0, 1, 3))),
    (Case("vec_n", "amji,cbkm->kjicba", {"a": 24, "m": 24, "j": 4, "i": 24, "c": 5, "b": 12, "k": 6}),
     Layout((0, 1, 2, 4, 3, 5))),
    (Case("vec_n-apart", "adb,cd->cba", {"a": 32, "b": 32, "c": 512, "d": 64}), DENSE),
    (Case("vec_m", "akbc,jk->cjba", {"c": 96, "a": 64, "b": 3, "k": 40, "j": 24}), Layout((2, 1, 0, 3))),
    (Case("spare-rows", "cabkd,kj->dcjba", {"c": 3, "a": 48, "b": 5, "k": 36, "d": 48, "j": 24}),
     Layout((), (1, 1, 1, 2, 1))),
    (Case("scalar", "adb,cd->cba", {"a": 24, "b": 24, "c": 64, "d": 40}), Layout((1, 0, 2))),
    (Case("padded", "mk,kn->mn", {"m": 137, "k": 72, "n": 200}), Layout((), (2, 1), 8)),
    (Case("broadcast", "lmk,lkn->lmn", {"l": 3, "m": 200, "k": 72, "n": 136}), Layout(ones=(0,))),
    *((case, DENSE) for case in MMA_TILES[:4]),
)  # fmt: skip
# No tensor map brings C's boxes as D's leave: another unit-stride mode, elements apart, addresses, one row for all.
VECTOR_SOURCE: tuple[tuple[Case, Layout], ...] = tuple(
    (Case("vectors", "mk,kn->mn", {"m": 136, "k": 72, "n": 200}), layout)
    for layout in (Layout((1, 0)), Layout((), (1, 2)), Layout(offset=4), Layout(ones=(0,)))
)
# The rows of A and of B along two contracted modes: one long sum, split; ragged modes in tiles that hang over; batches;
# shares of 63 rows; several tiles a block, many k-tiles.
RS_LONG = Case("long", "lik,jkl->ji", {"i": 120, "j": 96, "k": 64, "l": 384})
RS_WIDER = Case("wider", "lik,jkl->ji", {"i": 200, "j": 96, "k": 64, "l": 384})
RS_RAGGED = Case("ragged", "lnim,kmjn->lkji", {"i": 24, "j": 10, "k": 9, "l": 7, "m": 40, "n": 56})
RS_GAPS = Case("gaps", "lnim,kmjn->lkji", {"i": 64, "j": 42, "k": 12, "l": 9, "m": 40, "n": 32})
RS_MANY = Case("many", "lnim,kmjn->lkji", {"i": 96, "j": 36, "k": 40, "l": 48, "m": 48, "n": 64})
RS_BATCHED = Case("batched", "bmkl,bnlk->bmn", {"b": 3, "m": 72, "n": 48, "k": 32, "l": 32})
WGMMA_RS = (RS_LONG, RS_WIDER, RS_RAGGED, RS_BATCHED, RS_GAPS, RS_MANY)
# Strides that suit no tensor map.
GATHER = (
    Case("k-mn", "ik,kj->ij", {"i": 137, "j": 241, "k": 143}),
    Case("mn-mn", "ki,kj->ij", {"i": 237, "j": 141, "k": 99}),
    Case("k-k", "ik,jk->ij", {"i": 301, "j": 77, "k": 299}),
    Case("short-unit", "kil,jkl->ij", {"i": 83, "j": 93, "k": 17, "l": 11}),
    Case("one-aligned", "ik,kj->ij", {"i": 256, "j": 191, "k": 128}),
    Case("split", "lki,kjl->ji", {"i": 45, "j": 91, "k": 81, "l": 97}),
    Case("two-ragged", "imk,jmk->ij", {"i": 101, "j": 105, "k": 23, "m": 15}),
    Case("batched", "lik,lkj->lij", {"l": 3, "i": 131, "j": 67, "k": 45}),
    Case("few-columns", "ik,jk->ij", {"i": 333, "j": 23, "k": 199}),
    Case("many-modes", "aibk,bkcj->caji", {"a": 5, "i": 23, "b": 3, "k": 19, "c": 7, "j": 11}),
    # D leaves by tensor maps, which end where its rows and columns do.
    Case("boxed", "ik,jk->ij", {"i": 200, "j": 136, "k": 99}),
    Case("boxed-together", "aik,bjk->ijab", {"i": 23, "j": 21, "a": 24, "b": 40, "k": 99}),
)
# The contracted unit modes of A and B differ: pieces of one of them are transposed in shared memory.
GATHER_TRANSPOSE = (
    Case("transposed", "lik,jkl->ji", {"i": 45, "j": 37, "k": 29, "l": 27}),
    Case("transposed-batched", "bmkl,bnlk->bmn", {"b": 3, "m": 71, "n": 47, "k": 33, "l": 31}),
    Case("transposed-wide", "lik,jkl->ji", {"i": 301, "j": 283, "k": 61, "l": 59}),
    Case("transposed-third", "lrik,jkrl->ji", {"i": 45, "j": 37, "k": 19, "l": 17, "r": 5}),
    Case("transposed-many", "lnim,kmjn->lkji", {"i": 23, "j": 11, "k": 9, "l": 7, "m": 41, "n": 55}),
)
# D's runs go over a short mode and the next one, of which the last case's tiles take a part.
VECTOR_STORE = (
    Case("run-of-two", "uw,ziu->zwi", {"u": 64, "w": 16, "i": 9, "z": 21}),
    Case("run-of-two-batches", "luw,lziu->lzwi", {"u": 40, "w": 24, "i": 5, "z": 37, "l": 2}),
    Case("run-ends-inside", "uw,ziu->zwi", {"u": 64, "w": 72, "i": 7, "z": 13}),
)
# D has rows long enough to leave the chip row by row.
ROW_STORE = (
    Case("rows-n", "ik,kj->ij", {"i": 301, "j": 411, "k": 99}),
    Case("rows-whole", "bq,srqa->srba", {"b": 83, "q": 95, "s": 9, "r": 11, "a": 95}),
    Case("rows-flat", "cmji,bakm->kjicba", {"c": 23, "m": 23, "j": 19, "i": 19, "b": 23, "a": 23, "k": 3}),
    Case("rows-m", "cr,srba->scba", {"c": 83, "r": 95, "s": 7, "b": 11, "a": 95}),
    Case("rows-short", "lki,kjl->ji", {"i": 25, "j": 16335, "k": 51, "l": 11}),
    Case("rows-transposed", "lnim,kmjn->lkji", {"i": 71, "j": 41, "k": 29, "l": 27, "m": 41, "n": 55}),
)
# The same beside tensor maps: rows along N and along M, of several dimensions, shared by clusters, in many batches.
ROW_STORE_MAPS = (
    Case("map-rows-batched", "bqhd,bkhd->bhqk", {"b": 2, "q": 141, "h": 3, "k": 333, "d": 80}),
    Case("map-rows-m", "jk,ik->ij", {"i": 77, "j": 1023, "k": 64}),
    Case("map-rows-boxes", "ik,jlk->ijl", {"i": 200, "j": 9, "l": 35, "k": 48}),
    Case("map-rows-shared", "ik,jk->ij", {"i": 1030, "j": 1023, "k": 512}),
)
ROW_STORE_RS = (Case("rs-rows", "kml,lnk->mn", {"m": 136, "n": 331, "k": 8, "l": 16}),)
# Both loaders of the multistage main loops and all of what they do: vectors along either group, offsets along K from a
# table, several batches a block, slices of K; bandwidth-bound kernels of both kinds.
MULTISTAGE = (
    Case("aligned", "ik,jk->ij", {"i": 40, "j": 72, "k": 80}),
    Case("mn-major", "ki,kj->ij", {"i": 40, "j": 72, "k": 72}),
    Case("odd", "ik,kj->ij", {"i": 37, "j": 41, "k": 43}),
    Case("two-units", "mkl,nlk->mn", {"m": 70, "n": 45, "k": 24, "l": 16}),
    Case("primes", "abcd,dcef->beaf", {"a": 7, "b": 11, "c": 13, "d": 5, "e": 17, "f": 3}),
    Case("huge-k", "ki,kj->ij", {"k": 20_011, "i": 16, "j": 24}),
    Case("batch-unit", "ijl,jkl->ikl", {"l": 6, "i": 19, "j": 23, "k": 21}),
)
STREAM = (
    Case("gemv", "ij,j->i", {"i": 333, "j": 700}),
    Case("outer", "i,j->ji", {"i": 33, "j": 211}),
    Case("dot", "ij,ji->", {"i": 170, "j": 190}),
    Case("hadamard", "ij,ji->ij", {"i": 170, "j": 190}),
    Case("gemv-outputs", "ji,j->i", {"i": 512, "j": 700}),
    Case("scaled", "i,ji->ij", {"i": 170, "j": 190}),
    Case("scaled-vectors", "i,ij->ij", {"i": 128, "j": 256}),
)

# A large operand times a small matrix: gates on far and on near qubits, a Kraus operator, odd extents.
STREAM_MATRIX = (
    Case("gate-far", "XYbf,abcdefghijklmnop->aXcdeYghijklmnop", dict.fromkeys("XYabcdefghijklmnop", 2)),
    Case("gate-last", "XYop,abcdefghijklmnop->abcdefghijklmnXY", dict.fromkeys("XYabcdefghijklmnop", 2)),
    Case("gate-mixed", "XYcp,abcdefghijklmnop->abXdefghijklmnoY", dict.fromkeys("XYabcdefghijklmnop", 2)),
    Case("kraus", "kXb,abc->akXc", {"k": 3, "X": 2, "a": 300, "b": 2, "c": 66}),
    Case("batches", "lxk,lak->alx", {"l": 6, "x": 4, "k": 2, "a": 4097}),
    Case("basis", "kx,bka->xba", {"k": 5, "x": 7, "a": 133, "b": 127}),
)

SPLIT = (
    Case("k-k", "mk,nk->mn", {"m": 200, "n": 136, "k": 160}),
    Case("k-mn", "mk,kn->mn", {"m": 328, "n": 416, "k": 96}),
    Case("mn-k", "km,nk->nm", {"m": 264, "n": 72, "k": 64}),
    Case("mn-mn", "km,kn->nm", {"m": 160, "n": 200, "k": 48}),
    Case("wide", "mk,kn->mn", {"m": 512, "n": 768, "k": 64}),
    Case("long", "mk,kn->mn", {"m": 72, "n": 88, "k": 4096}),
    Case("ragged", "mk,nk->mn", {"m": 137, "n": 101, "k": 84}),
    Case("batches", "bmk,bkn->bnm", {"b": 3, "m": 200, "n": 136, "k": 80}),
    Case("modes", "akcb,kdb->cad", {"a": 48, "k": 32, "c": 24, "b": 20, "d": 56}),
    Case("short-rows", "jkm,knj->mn", {"m": 264, "n": 120, "k": 36, "j": 4}),
    # Rows along two contracted modes.
    Case("leads", "mkl,nlk->mn", {"m": 200, "n": 264, "k": 48, "l": 32}),
    Case("leads-ragged", "lik,jkl->ji", {"i": 137, "j": 101, "k": 20, "l": 28}),
    Case("leads-long", "lik,jkl->ji", {"i": 72, "j": 56, "k": 68, "l": 60}),
    Case("leads-batched", "bmkl,bnlk->bmn", {"b": 3, "m": 72, "n": 48, "k": 32, "l": 36}),
    Case("leads-many", "lnim,kmjn->lkji", {"i": 23, "j": 11, "k": 9, "l": 7, "m": 12, "n": 20}),
    Case("leads-third", "lrik,jkrl->ji", {"i": 45, "j": 37, "k": 20, "l": 16, "r": 5}),
)

# Planes of operands that no tensor map moves: rows that start anywhere, pairs of elements, more modes than a map has,
# a mode of extent 2 or 7 along the rows, no unit stride in M, N or K.
SPLIT_COPIES = (
    Case("odd-k-k", "mk,nk->mn", {"m": 137, "n": 101, "k": 85}),
    Case("odd-k-mn", "mk,kn->mn", {"m": 201, "n": 133, "k": 67}),
    Case("odd-mn-mn", "km,kn->nm", {"m": 147, "n": 149, "k": 51}),
    Case("one-aligned", "mk,kn->mn", {"m": 264, "n": 101, "k": 64}),
    Case("pairs", "mk,nk->mn", {"m": 202, "n": 134, "k": 90}),
    Case("odd-long", "mk,nk->mn", {"m": 45, "n": 37, "k": 4095}),
    Case("odd-batches", "bmk,bkn->bnm", {"b": 3, "m": 101, "n": 77, "k": 45}),
    Case("odd-leads", "mkl,nlk->mn", {"m": 137, "n": 101, "k": 13, "l": 11}),
    Case("short-lead", "mjkl,nkjl->nm", {"m": 101, "n": 133, "j": 5, "k": 6, "l": 7}),
    Case("twos", "abcdefghijklmn,klmnopqrstuvwc->abudefpqghrsitjvow", dict.fromkeys("abcdefghijklmnopqrstuvw", 2)),
    Case("unit-batch", "mkb,nkb->bmn", {"b": 5, "m": 72, "n": 40, "k": 36}),
)

SPLIT_COPIES_COMPLEX = tuple(case for case in SPLIT_COPIES if case.name != "pairs")  # whose rows tensor maps move

# On TF32, A in registers: the rows of one operand along K, or of none; swizzles of all spans and none, K-tiles of two
# to eight steps; ragged extents; batches, slices of K, many modes.
TF32 = (
    Case("k-mn", "mk,kn->mn", {"m": 328, "n": 416, "k": 96}),
    Case("mn-k", "km,nk->nm", {"m": 264, "n": 72, "k": 64}),
    Case("mn-mn", "km,kn->nm", {"m": 160, "n": 200, "k": 48}),
    Case("wide", "mk,kn->mn", {"m": 512, "n": 768, "k": 64}),
    Case("wide-mn", "km,kn->mn", {"m": 512, "n": 768, "k": 128}),
    Case("long", "mk,kn->mn", {"m": 72, "n": 88, "k": 4096}),
    Case("long-mn", "km,kn->mn", {"m": 72, "n": 88, "k": 2048}),
    Case("ragged", "mk,kn->mn", {"m": 137, "n": 140, "k": 84}),
    Case("ragged-mn", "km,kn->mn", {"m": 132, "n": 100, "k": 37}),
    Case("shallow", "km,nk->nm", {"m": 264, "n": 136, "k": 20}),
    Case("odd-rows", "km,nk->nm", {"m": 264, "n": 100, "k": 64}),
    Case("few-columns", "amk,kj->ajm", {"a": 6, "m": 96, "k": 72, "j": 24}),
    Case("few-rows", "kam,kj->ajm", {"a": 6, "m": 96, "k": 40, "j": 24}),
    Case("spare-rows", "kam,kj->ajm", {"a": 42, "m": 24, "k": 36, "j": 20}),
    Case("spare-all", "akbm,akn->abmn", {"a": 3, "b": 30, "m": 20, "k": 36, "n": 12}),
    Case("batches", "bmk,bkn->bnm", {"b": 3, "m": 200, "n": 136, "k": 80}),
    Case("batches-mn", "bkm,bkn->bnm", {"b": 3, "m": 200, "n": 136, "k": 80}),
    Case("modes", "kcba,kdb->cad", {"a": 48, "k": 32, "c": 24, "b": 20, "d": 56}),
    Case("modes-mn", "akbc,kdbe->cade", {"a": 12, "k": 32, "c": 24, "b": 5, "d": 6, "e": 40}),
    Case("rows-of-64", "kam,bkn->abmn", {"a": 12, "m": 16, "k": 64, "b": 14, "n": 16}),
    Case("rows-of-32", "kam,bkn->abmn", {"a": 20, "m": 8, "k": 64, "b": 24, "n": 8}),
)
# In float64 by tensor map: each combination of majors, swizzles of all spans and none, tiles of one block of rows to
# four; ragged extents; batches, slices of K, many modes, a unit mode that a row of a swizzle has room beside.
DMMA = (
    Case("k-mn", "mk,kn->mn", {"m": 328, "n": 416, "k": 96}),
    Case("k-k", "mk,nk->mn", {"m": 328, "n": 208, "k": 64}),
    Case("mn-k", "km,nk->nm", {"m": 264, "n": 72, "k": 48}),
    Case("mn-mn", "km,kn->nm", {"m": 160, "n": 200, "k": 80}),
    Case("wide", "mk,nk->mn", {"m": 640, "n": 768, "k": 64}),
    Case("long", "mk,kn->mn", {"m": 72, "n": 88, "k": 2048}),
    Case("long-mn", "km,kn->mn", {"m": 72, "n": 88, "k": 2050}),
    Case("ragged", "mk,kn->mn", {"m": 137, "n": 102, "k": 74}),
    Case("ragged-mn", "km,kn->mn", {"m": 130, "n": 98, "k": 37}),
    Case("shallow", "km,nk->nm", {"m": 264, "n": 136, "k": 10}),
    Case("few-columns", "amk,kj->ajm", {"a": 6, "m": 96, "k": 72, "j": 24}),
    Case("few-rows", "kam,kj->ajm", {"a": 6, "m": 96, "k": 40, "j": 8}),
    Case("spare-rows", "kam,kj->ajm", {"a": 42, "m": 12, "k": 36, "j": 20}),
    Case("batches", "bmk,bkn->bnm", {"b": 3, "m": 200, "n": 136, "k": 80}),
    Case("two-leads", "lmk,nkl->mn", {"m": 328, "n": 136, "k": 40, "l": 24}),
    Case("two-leads-ragged", "lmk,nkl->nm", {"m": 137, "n": 72, "k": 22, "l": 6}),
    Case("batches-mn", "bkm,bkn->bnm", {"b": 3, "m": 200, "n": 136, "k": 48}),
    Case("modes", "kcba,kdb->cad", {"a": 24, "k": 32, "c": 24, "b": 20, "d": 28}),
    Case("modes-mn", "akbc,kdbe->cade", {"a": 12, "k": 32, "c": 24, "b": 5, "d": 6, "e": 40}),
    Case("rows-of-64", "kam,bkn->abmn", {"a": 12, "m": 8, "k": 64, "b": 14, "n": 8}),
    Case("rows-of-32", "kam,bkn->abmn", {"a": 40, "m": 4, "k": 64, "b": 48, "n": 4}),
    Case("rows-of-16", "kam,bkn->abmn", {"a": 80, "m": 2, "k": 64, "b": 48, "n": 2}),
    Case("short-k", "amk,kbn->abmn", {"a": 10, "m": 28, "k": 4, "b": 12, "n": 18}),
    Case("two-k", "amk,ank->mn", {"m": 200, "n": 136, "a": 24, "k": 4}),
)
# The same, staged where the stages were: fewer k-tiles than stages and more, ragged tiles, batches.
DMMA_REUSE = (
    Case("k-mn", "mk,kn->mn", {"m": 328, "n": 416, "k": 96}),
    Case("mn-k", "km,nk->nm", {"m": 520, "n": 216, "k": 464}),
    Case("ragged", "mk,kn->mn", {"m": 394, "n": 302, "k": 330}),
    Case("batches", "bmk,bkn->bnm", {"b": 3, "m": 200, "n": 136, "k": 80}),
    Case("two-leads", "lmk,nkl->mn", {"m": 328, "n": 136, "k": 40, "l": 24}),
)
# On complex128: the same in chunks, so that rows of as many bytes have half the elements.
DMMA_COMPLEX = (
    *DMMA,
    Case("three", "kam,bkn->abmn", {"a": 80, "m": 3, "k": 40, "b": 24, "n": 5}),
    Case("pairs-of-k", "amk,ank->mn", {"m": 200, "n": 136, "a": 36, "k": 2}),
    Case("three-k", "amk,ank->nm", {"m": 200, "n": 72, "a": 40, "k": 3}),
    Case("narrow", "mk,kn->nm", {"m": 264, "n": 40, "k": 56}),
    Case("two-leads-long", "mabk,nkba->mn", {"m": 72, "n": 56, "a": 64, "b": 3, "k": 20}),
)
# On TF32, both in shared memory: their rows along one contracted mode.
TF32_K = (
    Case("k-k", "mk,nk->mn", {"m": 200, "n": 136, "k": 160}),
    Case("ragged", "mk,nk->mn", {"m": 137, "n": 101, "k": 84}),
    Case("long", "mk,nk->mn", {"m": 72, "n": 88, "k": 4096}),
    Case("wide", "mk,nk->mn", {"m": 512, "n": 768, "k": 96}),
    Case("batches", "bmk,bnk->bnm", {"b": 3, "m": 200, "n": 136, "k": 80}),
    Case("residue", "mk,nk->mn", {"m": 200, "n": 136, "k": 20}),
)
