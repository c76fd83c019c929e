"""The contract of generated texts and headers: what headers use is what concepts list is what texts give.

A text without its entries is compiled for its concepts alone, which takes some milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

import gett
from docs import contract_tables
from gett.codegen.grouped import render_grouped
from gett.codegen.render import render_kernel
from gett.errors import CompileError
from gett.groups.ragged_tiles import ragged_schedules
from gett.ir.gemm import make_gemm_plan
from gett.jit.compile import CONTRACT, compile_uncached, kernel_headers
from gett.jit.nvrtc import load_nvrtc
from gett.jit.ptxas import lacking
from gett.jit.toolkit import find_toolkit
from gett.schedule.search.select import candidates
from gett.schedule.spec.grouped import GroupedLoad, GroupedSchedule, GroupedTile, Ragged
from tests.cases import Case, Layout
from tests.cpu.codegen.contract_texts import Struct, structs, without
from tests.cpu.groups.ragged_cases import RaggedCase
from tests.specs import few_kernels

HEADERS = {
    name: re.sub(r"//.*", "", text)
    for name, text in kernel_headers().items()
    if not name.startswith(contract_tables.FOLDER)
}
MEMBERS = contract_tables.members()
PARTS = 8  # of the kinds of kernels, each a test
TRAITS = ("ProblemTraits", "TileShape", "SchedulerTraits", "MainloopTraits", "EpilogueTraits", "Traits")
# Names that headers have for the traits of an operand's loader.
LOADERS = r"(?:LoaderTraits[ABC]?|LoaderA|LoaderB|TraitsA|TraitsB|StationaryLoader)"
# Members of headers' own that stand behind the same words: `LoaderTraits` of a class, `Loader` of another.
OWN = {"LoaderTraitsA", "LoaderTraitsB", "LoaderTraitsC", "LoaderTraits"}
# What only the text itself uses: see docs/contract.md.
TEXTS_OWN = {"Params": r"s|f|i|pad|unused|map_[abcd]|x\d+", "Index": r"KCoords|k_coords|KEntry|OTile|KTile"}


def listed(*names: str) -> set[str]:
    return {m.name for m in MEMBERS if m.struct in names}


# Products whose candidates have every main loop, store and tile scheduler but the rarest.
PRODUCTS = (
    (Case("whole", "ik,kj->ij", dict(i=4096, j=512, k=512)), "float16", "ieee", None),
    (Case("odd", "ik,kj->ij", dict(i=511, j=511, k=511)), "float16", "ieee", None),
    (Case("added", "ik,kj->ij", dict(i=512, j=512, k=512)), "float16", "ieee", Layout()),
    (Case("planes", "ik,kj->ij", dict(i=512, j=512, k=512)), "float32", "bf16x6", None),
    (Case("rounded", "ki,kj->ij", dict(i=512, j=512, k=512)), "float32", "tf32", None),
    (Case("double", "ik,kj->ij", dict(i=512, j=512, k=512)), "float64", "ieee", None),
    (Case("two-leads", "lik,jkl->ji", dict(i=512, j=512, k=64, l=64)), "float16", "ieee", None),
    (Case("integers", "ik,kj->ij", dict(i=512, j=512, k=512)), "int32", "ieee", Layout()),
    (Case("gate", "iakb,ac->ickb", dict(i=512, a=4, c=4, k=64, b=8)), "complex64", "ieee", None),
)


def kind_of(text: str) -> str:
    """The classes that a text names."""
    return " ".join(re.findall(r"gett::(\w+)<", text))


@cache
def grouped_texts() -> tuple[str, ...]:
    """The texts of grouped launches: by a table, listed in the argument, ragged, and ragged by tensor maps."""
    loads = (GroupedLoad("float64", False, "k", 2), GroupedLoad("float64", False, "mn", 2))
    tile = GroupedTile((64, 64, 16), (2, 2), 3)
    texts = [
        render_grouped(GroupedSchedule("sm_90a", "float64", "float64", *loads, True, tile, ragged, listed)).text
        for ragged, listed in ((None, False), (None, True), (Ragged("m", "int32"), False))
    ]
    for subscripts in ("tk,ekn->tn", "tk,tn->ekn"):
        plans = RaggedCase(subscripts, dict(t=512, e=4, k=512, n=512)).plans
        assert plans is not None
        texts.append(render_kernel(plans.whole, ragged_schedules(plans, "sm_90a", "int32")[0]).source.text)
    return tuple(texts)


@cache
def kinds() -> tuple[str, ...]:
    """A text of each kind; of a packed schedule the product and the copies are kinds of their own."""
    found: dict[str, str] = {}
    for case, dtype, precision, c in PRODUCTS:
        plan = make_gemm_plan(case.contraction(dtype, precision=precision, with_c=c))
        for schedule in (s for s in candidates(plan, "sm_90a") if s.packing is None):
            text = render_kernel(plan, schedule).source.text
            found.setdefault(kind_of(text), text)
    for subscripts, shape in (("ijk->kji", (60, 64, 64)), ("ijk->j", (60, 64, 64))):
        step = gett.plan(subscripts, (shape, "float32"), arch="sm_90a").steps[0]
        assert step.gemm is not None
        assert step.schedule is not None
        text = render_kernel(step.gemm, step.schedule).source.text
        found.setdefault(kind_of(text), text)
    for text in grouped_texts():
        found.setdefault(kind_of(text), text)
    return tuple(found.values())


@cache
def catalogue() -> tuple[str, ...]:
    """The texts of the catalogue."""
    return tuple(dict.fromkeys(render_kernel(s.plan, s.schedule).source.text for s in few_kernels()))


def declarations(text: str) -> str:
    """A text without its entries."""
    return text.partition('\nextern "C"')[0]


def said(text: str) -> str:
    """What the concepts say of a text, as errors of `compile_uncached` do; nothing where it keeps the contract."""
    toolkit = find_toolkit()
    options = [*CONTRACT, "--gpu-architecture=sm_90a", f"--include-path={toolkit.include}"]
    outcome = load_nvrtc(toolkit).compile(declarations(text), "kernel.cu", kernel_headers(), options)
    assert not outcome.error or lacking(outcome.log), outcome.log
    return lacking(outcome.log) or ""


# --- the concepts are the list


def test_a_line_of_a_concept_names_one_member_and_says_what_it_is() -> None:
    for header, text in kernel_headers().items():
        if header.startswith(contract_tables.FOLDER):
            code = re.sub(r"//.*", "", text)
            assert code.count("requires") == sum(m.header == header for m in MEMBERS), header
            for line in code.splitlines():
                assert line.count("requires") <= 1, line
    assert all(m.meaning for m in MEMBERS), [m.name for m in MEMBERS if not m.meaning]
    assert len({(m.struct, m.name) for m in MEMBERS}) > 200


def test_every_concept_is_asked_for() -> None:
    asked = {x for part in contract_tables.parts() for x in contract_tables.uses()[part]}
    assert asked == set(contract_tables.homes())


@pytest.mark.parametrize("name", [x for x in kernel_headers() if x.startswith(contract_tables.FOLDER)])
def test_a_header_of_concepts_compiles_alone(name: str) -> None:
    compile_uncached(f'#include "{name}"\nextern "C" __global__ void k() {{}}\n', "sm_90a", options=CONTRACT)


def test_classes_that_texts_name_ask_for_their_concept() -> None:
    named = {x for text in kinds() for x in kind_of(text).split()}
    # The kernels' own classes, which have parts as arguments, and what a concept of another class covers.
    covered = {"Gemm", "RaggedGemm", "MultistageGemm", "WarpMma", "SimtMma", "Dmma", "SwizzledTile"}
    covered |= {"reduce_slices", "convert", "tile_div", "tile_mod"}
    assert named - covered <= set(contract_tables.parts()), named - covered
    seldom = {"SliceSums", "RowStore", "PersistentBatches", "PersistentPanel", "StreamK"}
    assert set(contract_tables.parts()) - named <= seldom, set(contract_tables.parts()) - named


# --- headers use what concepts list


def test_headers_use_what_is_listed() -> None:
    loaders, traits = listed("LoaderTraits"), listed(*TRAITS) | OWN
    for name, code in HEADERS.items():
        used = set(re.findall(r"\bTraits::(?:template )?(\w+)", code))
        assert used <= traits | {"kN"} if "stream_matrix" in name else used <= traits, (name, used - traits)
        assert set(re.findall(rf"\b{LOADERS}::(k\w+)", code)) <= loaders, name
        assert set(re.findall(r"\bIndex::(?:template )?(\w+)", code)) - {"rows", "columns"} <= listed("Index"), name
        assert set(re.findall(r"\bSmem::(\w+)", code)) <= listed("Smem"), name
        assert set(re.findall(r"\b(?:p|p_|q)\.(\w+)", code)) - {"at"} <= listed("Params"), name


def test_what_is_listed_is_used() -> None:
    every = "\n".join(HEADERS.values())
    for m in MEMBERS:
        mark = rf"\b(?:p|p_|q)\.{m.name}\b" if m.struct == "Params" else rf"::(?:template )?{m.name}\b"
        types = m.header.endswith("loops.cuh") and re.fullmatch(r"(TileCoords|KCoords)[AB]", m.name)  # of arguments
        assert types or re.search(mark, every), m


# --- texts give what concepts list


def test_texts_keep_the_contract() -> None:
    for text in kinds():
        assert not said(text)


@pytest.mark.slow
def test_texts_of_the_catalogue_keep_the_contract() -> None:
    for text in catalogue():
        assert not said(text)


def given_by(every: Iterable[str]) -> dict[str, set[str]]:
    """The members that texts have, by their struct as concepts call it."""
    given: dict[str, set[str]] = {}
    for text in every:
        for struct in structs(text):
            kind = "LoaderTraits" if struct.name.startswith("LoaderTraits") else struct.name
            kind = {"StagedTileTraits": "EpilogueTraits"}.get(kind, kind)
            given.setdefault(kind, set()).update(struct.members)
    return given


def test_texts_give_no_more_than_what_is_listed() -> None:
    for kind, names in given_by(kinds()).items():
        more = {x for x in names - listed(kind) if not re.fullmatch(TEXTS_OWN.get(kind, "-"), x)}
        assert not more, (kind, more)


@pytest.mark.slow
def test_texts_of_the_catalogue_give_all_that_is_listed() -> None:
    given = given_by((*catalogue(), *grouped_texts()))
    seldom = r"(step|advance|image|tile_index)_[abcd]|o_c|l_c|op(_\w+)?|Op\w+|kElementReads"  # in few stream kernels
    for kind, names in given.items():
        missing = {x for x in listed(kind) - names if not (kind == "Index" and re.fullmatch(seldom, x))}
        assert not missing, (kind, missing)
        more = {x for x in names - listed(kind) if not re.fullmatch(TEXTS_OWN.get(kind, "-"), x)}
        assert not more, (kind, more)


# --- where a member is missing, the error is its line


def lacks(text: str, struct: Struct, member: str) -> bool:
    """Whether the concepts miss a member that is taken away; then the line names it."""
    found = said(without(text, struct, member))
    if not found:
        return False
    assert len(found.splitlines()) == 1, found
    # A function may be missed by what it returns, or by who takes that.
    assert found.startswith("the text lacks "), found
    name = found.split("::")[1].split()[0]
    assert name == member or struct.name == "Index", (member, found)
    return True


def cases(text: str) -> Iterator[tuple[int, str]]:
    """The members of a text, by number of their struct."""
    for number, struct in enumerate(structs(text)):
        for member in struct.members:
            yield number, member


def without_all(text: str, members: Iterable[tuple[int, str]]) -> str:
    """The text with other names for several members."""
    for number, member in members:
        text = without(text, structs(text)[number], member)
    return text


def test_the_error_is_one_line_that_names_the_member() -> None:
    text = next(x for x in kinds() if "gett::WgmmaSS<" in x and "gett::TmaStore<" in x)
    for name, member in (
        ("Params", "tiles"), ("TileShape", "kMmaM"), ("SchedulerTraits", "kClusterM"), ("MainloopTraits", "kStages"),
        ("LoaderTraitsB", "kRows"), ("EpilogueTraits", "kStoreWarp"), ("Smem", "kBarriers"), ("Index", "load_stage"),
    ):  # fmt: skip
        struct = next(x for x in structs(text) if x.name == name)
        with pytest.raises(CompileError) as error:
            compile_uncached(without(text, struct, member), "sm_90a")  # as every kernel is compiled
        head, line = str(error.value).splitlines()
        assert "does not compile" in head
        assert line.startswith(f"the text lacks {name}::{member}"), line
        assert re.search(r"needed for: typedef gett::\w+<.*\[gett/contract/\w+\.cuh, line \d+\]$", line), line


def test_other_errors_are_told_as_they_are() -> None:
    text = kinds()[0].replace("struct Index {", "int x = no_such_thing;\nstruct Index {")
    with pytest.raises(CompileError, match="no_such_thing"):
        compile_uncached(text, "sm_90a")
    assert lacking("kernel.cu(3): error: something else\n") is None


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_of_every_kind_of_kernel_each_member_is_missed(part: int) -> None:
    """The whole contract: what a kernel cannot do without is in a concept of one of its parts.

    Members that the concepts do not miss are those that this kernel does without: its text compiles without them all.
    """
    for text in kinds()[part::PARTS]:
        every, found = list(cases(text)), structs(text)
        spare = [(number, member) for number, member in every if not lacks(text, found[number], member)]
        assert len(spare) < len(every) / 2
        compile_uncached(without_all(text, spare), "sm_90a", allow_spills=True)
