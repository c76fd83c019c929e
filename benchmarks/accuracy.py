"""Errors of float32 products, component by component, by precision and library.

Owns the data and the unit: 2^-24 of the sum of the magnitudes of an element's products, what one rounding of the
largest of them may give. The reference is the product in double precision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

import gett
from benchmarks import environment
from benchmarks.picture import picture
from benchmarks.records import write_text
from gett.baselines.rivals import Libraries, Setting, math_mode
from gett.errors import GettError

Values = Callable[[Any, tuple[int, int]], Any]
UNIT = 2.0**-24
SIDE = 96  # rows and columns of a product
DEPTHS = (16, 64, 256, 1024, 4096, 16384, 65536, 1 << 20)
DEPTHS_CPU = (16, 64, 256, 1024)
DEEPEST = {"normal": 1 << 20, "uniform": 1 << 20}  # of other data 65536
SUBSCRIPTS = "mk,kn->mn"


def _spread(bits: int) -> Values:
    def values(rng: Any, shape: tuple[int, int]) -> Any:
        return rng.standard_normal(shape) * 2.0 ** rng.integers(-bits, bits + 1, shape)

    return values


def _outliers(rng: Any, shape: tuple[int, int]) -> Any:
    return rng.standard_normal(shape) * np.where(rng.random(shape) < 0.01, 2.0**20, 1)


def _by_row(rng: Any, shape: tuple[int, int]) -> Any:
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-40, 41, (shape[0], 1))


DATA: dict[str, Values] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "2^8": _spread(8),
    "2^12": _spread(12),
    "2^30": _spread(30),
    "outliers": _outliers,
    "lognormal": lambda rng, shape: rng.lognormal(0, 2, shape),
    "rows": _by_row,
    "zeros": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.1),
}
"""Operands by name: exponents within +-n for `2^n`, 1 % outliers of 2^20, rows scaled by up to 2^40, 90 % zeros."""

BOUNDS: dict[str, Callable[[int], float]] = {
    "ieee": lambda k: k + 1.0,
    "bf16x6": lambda k: 13 + k / 16,
    "fp16x3": lambda k: 28 + k / 32,
    "tf32": lambda k: 2.0**14 + k,
}
"""What gett promises of each precision, in units."""


def errors(a: Any, b: Any, found: Any) -> tuple[float, float]:
    """Largest and median error of a product of two matrices of float32, in units."""
    wide_a, wide_b = a.astype("float64"), b.astype("float64")
    exact, size = wide_a @ wide_b, abs(wide_a) @ abs(wide_b)
    units = abs(found.astype("float64") - exact) / (size + (size == 0)) / UNIT
    flat = np.sort(np.asarray(units.get() if hasattr(units, "get") else units).ravel())
    return float(flat[-1]), float(flat[flat.size // 2])


def ways(on_gpu: bool) -> dict[str, tuple[str | None, Callable[[Setting], Any]]]:
    """Who multiplies: the precision that is asked for, and the call."""
    own = {f"gett {name}": (name, Setting.gett) for name in BOUNDS}
    if not on_gpu:
        return {"gett ieee": own["gett ieee"], "numpy": (None, Setting.numpy_einsum)}
    rivals = {"cublas": Setting.cublas, "cutensor": lambda s: s.cutensor("default"), "torch": Setting.torch_einsum}
    others = {f"{name}{' tf32' if p else ''}": (p, call) for name, call in rivals.items() for p in (None, "tf32")}
    return {**own, **others}


def measure(on_gpu: bool) -> Iterator[dict[str, Any]]:
    """The errors of all ways for one kind of data and one depth after the other."""
    xp: Any = np
    if on_gpu:
        import cupy as xp
    libraries = Libraries()
    depths = DEPTHS if on_gpu else DEPTHS_CPU
    jobs = [(name, k) for name in DATA for k in depths if k <= DEEPEST.get(name, 1 << 16)]
    for name, k in tqdm(jobs, desc="accuracy", unit="product", leave=False, disable=None):
        rng = np.random.default_rng(k)
        a, b = (xp.asarray(DATA[name](rng, shape).astype("float32")) for shape in ((SIDE, k), (k, SIDE)))
        found: dict[str, Any] = {}
        for way, (precision, call) in ways(on_gpu).items():
            d = xp.zeros((SIDE, SIDE), "float32")
            setting = Setting(SUBSCRIPTS, "float32", precision, [(a, b, d)], libraries)
            try:
                found[way] = errors(a, b, _run(setting, call, on_gpu, xp))
            except (GettError, ImportError, RuntimeError) as error:  # a library that is not there
                found[way] = str(error).splitlines()[0][:100]
        yield {"data": name, "k": k, "errors": found}


def _run(setting: Setting, call: Callable[[Setting], Any], on_gpu: bool, xp: Any) -> Any:
    if not on_gpu:
        return call(setting)(0)
    with math_mode(setting.precision, setting.libraries):
        found = call(setting)(0)
        xp.cuda.Device().synchronize()
    return xp.asarray(found)


def table(rows: list[dict[str, Any]]) -> str:
    """Largest errors, a line for each way and kind of data."""
    depths = sorted({row["k"] for row in rows})
    lines = ["largest error of a component in units of 2^-24 of its products' magnitudes (median), by k"]
    for way in rows[0]["errors"]:
        told = [row["errors"][way] for row in rows if isinstance(row["errors"][way], str)]
        if told:
            lines += ["", f"{way}: {told[0]}"]
            continue
        lines += ["", f"{way:<16}" + "".join(f"{k:>16}" for k in depths)]
        for name in dict.fromkeys(row["data"] for row in rows):
            at = {row["k"]: row["errors"][way] for row in rows if row["data"] == name}
            cells = (f"{at[k][0]:.3g} ({at[k][1]:.2g})" if k in at else "" for k in depths)
            lines.append(f"  {name:<14}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def broken(rows: list[dict[str, Any]]) -> list[str]:
    """Where gett's errors exceed what it promises."""
    out = []
    for row in rows:
        for name, bound in BOUNDS.items():
            found = row["errors"].get(f"gett {name}")
            if isinstance(found, str) or (found is not None and not found[0] <= bound(row["k"])):
                out.append(f"{name}, {row['data']}, k = {row['k']}: {found}, promised {bound(row['k']):.0f}")
    return out


def plot(rows: list[dict[str, Any]], path: str) -> None:
    """Largest errors by depth, for two kinds of data.

    Raises:
        ImportError: matplotlib is not installed; it comes with the `bench` extra.
    """
    with picture(path, 1, 2, figsize=(13, 4.6), sharey=True) as axes:
        for ax, name in zip(axes[0], ("normal", "uniform"), strict=True):
            for way in rows[0]["errors"]:
                found = [(row["k"], row["errors"][way]) for row in rows if row["data"] == name]
                points = [(k, e[0]) for k, e in found if not isinstance(e, str)]
                if points:
                    ax.loglog(*zip(*points, strict=True), marker="o", markersize=3, label=way)
            ax.set(title=f"{name} data", xlabel="k", ylabel="largest error, 2^-24 of the magnitudes")
            ax.legend(fontsize=7)


def main(*, on_gpu: bool, json_path: str | None = None, plot_path: str | None = None) -> int:
    """Measure, print, and write what is asked for; 1 where an error is larger than promised."""
    rows = list(measure(on_gpu))
    if json_path:
        made = {"environment": environment.describe(), "gett": gett.__version__, "rows": rows}
        write_text(json.dumps(made) + "\n", json_path)
    if plot_path:
        plot(rows, plot_path)
    print(table(rows))
    wrong = broken(rows)
    told = [f"MORE THAN PROMISED: {line}" for line in wrong] or ["none is more than promised"]
    print("", *told, sep="\n")
    return 1 if wrong else 0
