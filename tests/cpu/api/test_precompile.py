"""Kernels compiled ahead of use: what is given, what is compiled, what is told, and what an interrupt leaves."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import gett
import gett.jit.compile
import gett.runtime.compiling
import gett.runtime.grouped
from gett.errors import CompileError, MissingPackageError, OptionError, PoorKernelError
from gett.jit.compile import CompileResult
from gett.jit.diskcache import kernel_cache
from gett.jit.entries import unpack_entry
from gett.runtime.grouped import is_cached
from gett.schedule.grouped import shared_schedule
from gett.slices.finder import find_plan
from tests.cpu.tuning import FACTS, new_process, request

PRODUCT = ("ij,jk->ik", [(64, 96), (96, 48)], "float64")
CHAIN = {"eq": "ab,bc,cd->ad", "shapes": [[32, 24], [24, 16], [16, 8]], "dtype": "float64", "path": [[1, 2], [0, 1]]}


@pytest.fixture
def compiler(own_cache, monkeypatch):
    """A stand-in for NVRTC: the texts that it was given; `fail` says what one of them raises."""

    class Stand:
        def __init__(self):
            self.texts, self.fail = [], lambda text: None

    stand = Stand()

    def compile_uncached(text, arch, *, name="kernel", **options):
        stand.texts.append(text)
        error = stand.fail(text)
        if error is not None:
            raise error
        return CompileResult(f"cubin {arch} {hash(text)}".encode(), "")

    monkeypatch.setattr(gett.runtime.compiling, "compile_uncached", compile_uncached)
    return stand


def test_later_plans_find_their_kernels(compiler, monkeypatch):
    done = gett.precompile({"product": PRODUCT, "chain": CHAIN}, arch="sm_80")
    assert (done.arch, done.entries, done.compiled, done.cached) == (("sm_80",), ("product", "chain"), 3, 0)
    assert len(compiler.texts) == done.kernels == 3
    new_process(monkeypatch)
    gett.plan(PRODUCT[0], *[(s, "float64") for s in PRODUCT[1]], arch="sm_80").compile()
    gett.plan(
        CHAIN["eq"], *[(tuple(s), "float64") for s in CHAIN["shapes"]], optimize=[(1, 2), (0, 1)], arch="sm_80"
    ).compile()
    assert len(compiler.texts) == 3


def test_a_second_run_compiles_nothing(compiler, monkeypatch):
    gett.precompile([PRODUCT, CHAIN], arch="sm_80")
    new_process(monkeypatch)
    again = gett.precompile([PRODUCT, CHAIN, PRODUCT], arch="A100")
    assert (again.compiled, again.cached, again.entries) == (0, 3, ("0", "1", "2"))
    assert re.fullmatch(r"3 kernels of 3 entries for sm_80: 0 compiled, 3 from the cache, in [\d.]+ m?s", str(again))


def test_contractions_of_one_text_are_compiled_once(compiler):
    """Extents are arguments of a kernel."""
    larger = ("ij,jk->ik", [(128, 192), (192, 96)], "float64")
    plans = [gett.plan(x[0], *[(s, x[2]) for s in x[1]], arch="sm_80") for x in (PRODUCT, larger)]
    done = gett.precompile([*plans, PRODUCT], arch="sm_80")
    texts = {s.kernel.source.text for s in _kernels(plans)}
    assert len(compiler.texts) == done.compiled == len(texts)


def _kernels(plans):
    return [gett.runtime.compiling.compile_best(s.gemm, p.arch) for p in plans for s in p.steps]


def test_a_file_has_networks_and_single_contractions(compiler, tmp_path):
    path = tmp_path / "networks.json"
    product = {"eq": PRODUCT[0], "shapes": PRODUCT[1], "dtype": ["float64", "float64"], "order": "F"}
    path.write_text(json.dumps({"product": product, "chain": CHAIN}))
    assert gett.precompile(path, arch="sm_80").compiled == 3
    path.write_text(json.dumps([product, CHAIN]))
    assert gett.precompile(str(path), arch="sm_80").entries == ("0", "1")


def test_a_plan_shows_what_was_compiled(compiler):
    plan = gett.plan("ij->ji", ((64, 64), "float16"), arch="sm_90a")
    done = gett.precompile(plan)
    assert (done.arch, done.compiled, plan.settled) == (("sm_90a",), 1, True)


def test_slices_of_every_extent_have_their_kernels(compiler):
    """What is left of a mode, what adds to sums, and what is done with these."""
    shapes = ((40, 30), (50, 30), (50, 20), (40, 20))
    pairs = [(x, "float64") for x in shapes]
    limit = f"{gett.plan('ab,cb,cd,ad->ac', *pairs, arch='sm_80').peak_bytes * 2 // 3}B"
    plan = gett.plan("ab,cb,cd,ad->ac", *pairs, c=((40, 50), "float64"), memory_limit=limit, arch="sm_80")
    assert plan.slices > 1
    gett.precompile([plan])
    count = len(compiler.texts)
    assert all(x.settled for x in plan.parts)
    assert len(plan.parts) >= 3
    plan.compile()
    assert len(compiler.texts) == count


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "a file, a mapping or a list"),
        ([("ij,jk->ik", [(2, 3)])], "entry '0' is"),
        ({"mine": {"shapes": [[1]], "dtype": "f4"}}, "entry 'mine' has no 'eq'"),
        ({"mine": {"eq": 1, "shapes": [[1]], "dtype": "f4"}}, "entry 'mine': 'eq' is 1"),
        ({"mine": {"eq": "i->i", "shapes": "1", "dtype": "f4"}}, "entry 'mine': 'shapes' is '1'"),
        ({"mine": {"eq": "i->i", "shapes": [[1.5]], "dtype": "f4"}}, "entry 'mine': 'shapes' is"),
        ({"mine": {"eq": "i->i", "shapes": [[1]], "dtype": ["f4", "f4"]}}, "entry 'mine': 2 dtypes for 1 shapes"),
        ({"mine": {"eq": "i->i", "shapes": [[1]], "dtype": "f4", "paths": []}}, "entry 'mine' has a key 'paths'"),
        ({"mine": CHAIN | {"path": [0, 1]}}, "entry 'mine': 'path' is"),
        ("nowhere.json", "nowhere.json cannot be read"),
    ],
)
def test_a_bad_form_is_named(given, words, compiler):
    with pytest.raises(OptionError, match=re.escape(words)):
        gett.precompile(given, arch="sm_80")


def test_a_file_that_is_no_json_is_named(tmp_path):
    path = tmp_path / "bad.json"
    for text, words in (("{", "is no JSON"), ("3", "has a int")):
        path.write_text(text)
        with pytest.raises(OptionError, match=words):
            gett.precompile(path, arch="sm_80")


def test_an_entry_that_cannot_be_planned_is_named_in_its_own_error_before_anything_is_compiled(compiler):
    bad = {"good": PRODUCT, "bad": ("ij,jk->ik", [(2, 3), (4, 5)], "f4")}
    with pytest.raises(gett.ShapeError, match="entry 'bad': mode 'j'"):
        gett.precompile(bad, arch="sm_80")
    with pytest.raises(gett.DTypeError, match="entry 'bad'"):
        gett.precompile({"bad": ("ij->ji", [(2, 3)], "float31")}, arch="sm_80")
    assert compiler.texts == []


@pytest.mark.parametrize("arch", ["cpu", None])
def test_what_has_no_kernels_and_no_gpu_at_hand_are_refused(arch, compiler, monkeypatch):
    def none(device=None):
        raise MissingPackageError("no CuPy")

    monkeypatch.setattr("gett.runtime.device.device_facts", none)
    with pytest.raises(OptionError, match="arch="):
        gett.precompile([PRODUCT], arch=arch)
    with pytest.raises(OptionError, match="entry 'host': arch='cpu'"):
        gett.precompile({"host": gett.plan("ij->ji", np.ones((2, 2)))})


@pytest.mark.parametrize("processes", [0, True, 1.5])
def test_processes_are_at_least_one(processes):
    with pytest.raises(OptionError, match="processes="):
        gett.precompile([PRODUCT], arch="sm_80", processes=processes)


def test_an_entry_without_a_kernel_is_named_and_all_others_are_there(compiler):
    compiler.fail = lambda text: CompileError("no") if len(compiler.texts) == 1 else None
    given = {f"product {n}": ("ij,jk->ik", [(n, 96), (96, 48)], kind) for n, kind in ((640, "float64"), (64, "int32"))}
    with pytest.raises(CompileError, match="entry 'product 640': no"):
        gett.precompile(given, arch="sm_80", processes=1)
    assert len(compiler.texts) == 2
    assert kernel_cache().info().entries == 1


def test_a_poor_candidate_gives_way_to_the_next(compiler):
    compiler.fail = lambda text: PoorKernelError("it spills") if len(compiler.texts) == 1 else None
    assert gett.precompile([PRODUCT], arch="sm_80").compiled == 1


def test_an_interrupt_leaves_whole_kernels_and_the_next_run_goes_on(compiler, monkeypatch):
    given = [("ij,jk->ik", [(64, 96), (96, 48)], x) for x in ("float64", "float32", "int32", "complex128")]
    compiler.fail = lambda text: KeyboardInterrupt() if len(compiler.texts) == 3 else None
    with pytest.raises(KeyboardInterrupt):
        gett.precompile(given, arch="sm_80", precision=None, processes=1)
    cache = kernel_cache()
    files = sorted(cache.directory.glob("*"))
    assert [x for x in files if x.suffix != ".kernel" and x.is_file()] == []
    for x in files:
        if x.is_file():
            assert unpack_entry(bytes.fromhex(x.stem), x.read_bytes()) is not None
    kept, compiler.fail = cache.info().entries, lambda text: None
    assert 2 <= kept < 4
    new_process(monkeypatch)
    done = gett.precompile(given, arch="sm_80")
    assert (done.compiled, done.cached) == (4 - kept, kept)


def test_the_gpu_at_hand_remembers_its_schedules(fake_gpu, monkeypatch):
    """A first call then neither searches nor compiles."""
    monkeypatch.setattr("gett.runtime.device.device_facts", lambda device=None: FACTS)
    gett.precompile([("mk,kn->mn", [(64, 64), (64, 64)], "float32")])
    count = len(fake_gpu.compiled)
    assert count == 1
    new_process(monkeypatch)
    monkeypatch.setattr(gett.runtime.compiling, "begin_best", None)
    find_plan(request(64, 64, 64))
    assert len(fake_gpu.compiled) == count


# --- kernels that contractions share


def test_shared_kernels_of_dtypes(own_cache, monkeypatch):
    """Those on which a network of any extents runs at first, once each."""
    monkeypatch.setattr(gett.jit.compile, "compile_uncached", lambda text, arch, **_: CompileResult(text.encode(), ""))
    gett.runtime.grouped.compile_grouped.cache_clear()
    done = gett.precompile(shared=["complex64", np.float64, "complex64"], arch="H100")
    assert (done.arch, done.entries, done.compiled, done.cached) == (("sm_90a",), (), 4, 0)
    assert re.fullmatch(r"4 kernels for sm_90a: 4 compiled, 0 from the cache, in [\d.]+ m?s", str(done))
    gett.runtime.grouped.compile_grouped.cache_clear()
    again = gett.precompile([], shared=["complex64"], arch="sm_90a")
    assert (again.compiled, again.cached) == (0, 2)
    gemms = [s.gemm for s in gett.plan("ab,bc,cd->ad", *[((300, 300), "complex64")] * 3, arch="sm_90a").steps]
    assert all(is_cached(shared_schedule(gemm, "sm_90a")[0]) for gemm in gemms)
    gett.runtime.grouped.compile_grouped.cache_clear()


def test_kernels_that_make_steps_together_are_counted(compiler, monkeypatch):
    monkeypatch.setattr(gett.jit.compile, "compile_uncached", lambda text, arch, **_: CompileResult(text.encode(), ""))
    gett.runtime.grouped.compile_grouped.cache_clear()
    spec = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am"
    chain = (spec, [(4, 4)] * 12, "float64")
    done = gett.precompile([chain], arch="sm_90a")
    assert done.compiled == len(compiler.texts) + 1
    gett.runtime.grouped.compile_grouped.cache_clear()
    assert gett.precompile([chain], arch="sm_90a").cached == done.kernels
    gett.runtime.grouped.compile_grouped.cache_clear()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("complex64", OptionError, "shared='complex64' is no list of dtypes"),
        ([object], gett.DTypeError, "shared= has object, which no kernel multiplies"),
        (["float31"], gett.DTypeError, "float31"),
    ],
)
def test_what_has_no_shared_kernel_is_named(given, error, words):
    with pytest.raises(error, match=re.escape(words)):
        gett.precompile(shared=given, arch="sm_90a")
    with pytest.raises(OptionError, match="arch='cpu' has no kernels to compile"):
        gett.precompile(shared=["float32"], arch="cpu")
