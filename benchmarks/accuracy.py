"""Errors of float32 and complex64 products, component by component, by precision and library.

Owns the data and the unit: 2^-24 of the sum of the magnitudes of an element's products, what one rounding of the
largest of them may give. Real and imaginary parts are components of their own, sums of twice as many products. The
reference is the product in double precision.
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
from benchmarks.rivals.table import Libraries, Setting, math_mode
from gett.errors import GettError
from gett.ir.tensors import PRECISIONS

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


def _tiny(rng: Any, shape: tuple[int, int]) -> Any:
    """Planes cannot hold an A of these, which are no subnormal numbers yet; B makes up for it."""
    return rng.choice([-1, 1], shape) * (0.5 + 0.5 * rng.random(shape)) * 2.0 ** (-122 if shape[0] == SIDE else 110)


def _cancelling(rng: Any, shape: tuple[int, int]) -> Any:
    """The second half of K takes all but a millionth of the first half's sum away."""
    if shape[0] == SIDE:
        half = rng.standard_normal((SIDE, shape[1] // 2))
        return np.concatenate([half, half * (1 + 2.0**-20 * rng.standard_normal(half.shape))], axis=1)
    half = rng.standard_normal((shape[0] // 2, shape[1]))
    return np.concatenate([half, -half])


DATA: dict[str, Values] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "2^8": _spread(8),
    "2^12": _spread(12),
    "2^30": _spread(30),
    "2^60": _spread(60),
    "outliers": _outliers,
    "lognormal": lambda rng, shape: rng.lognormal(0, 2, shape),
    "rows": _by_row,
    "zeros": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.1),
}
"""Operands by name: exponents within +-n for `2^n`, 1 % outliers of 2^20, rows scaled by up to 2^40, 90 % zeros."""

PAIRS: dict[str, Values] = {"tiny": _tiny, "cancelling": _cancelling}
"""Operands of which A, with `SIDE` rows, is of another kind than B."""

KINDS = {**DATA, **PAIRS}
"""All of them."""

BOUNDS: dict[str, Callable[[int, int], float]] = {
    "ieee": lambda k, products: products * k + 1.0,
    "bf16x3": lambda k, products: 791 + products * k / 32,
    "bf16x6": lambda k, products: 3 + 10 * products + k / 16,
    "fp16x3": lambda k, products: 28 + products * k / 32,
    "tf32": lambda k, products: 2.0**14 + products * k,
}
"""What gett promises of each precision, in units, for a sum over k of so many real products each."""

PRODUCTS = {"float32": 1, "complex64": 2}
"""Real products of a component for each k."""


def errors(a: Any, b: Any, found: Any) -> tuple[float, float]:
    """Largest and median error of a product of two matrices of float32 or complex64, in units."""
    is_complex = found.dtype.kind == "c"
    wide_a, wide_b, wide = (x.astype("complex128" if is_complex else "float64") for x in (a, b, found))
    exact = wide_a @ wide_b
    pairs = [((wide_a.real, wide_b.real),), ((wide_a.real, wide_b.imag),)]
    if is_complex:
        pairs = [(*pairs[0], (wide_a.imag, wide_b.imag)), (*pairs[1], (wide_a.imag, wide_b.real))]
    units = []
    for pair, x, y in list(zip(pairs, (wide.real, wide.imag), (exact.real, exact.imag), strict=True))[: 1 + is_complex]:
        size = sum(abs(p) @ abs(q) for p, q in pair)
        units.append(abs(x - y) / (size + (size == 0)) / UNIT)
    flat = np.sort(np.concatenate([np.asarray(x.get() if hasattr(x, "get") else x).ravel() for x in units]))
    return float(flat[-1]), float(flat[flat.size // 2])


def operands(name: str, k: int, dtype: str) -> tuple[Any, Any]:
    """Two matrices of one kind of data, the same ones on every run."""
    rng = np.random.default_rng(k)
    made = []
    for shape in ((SIDE, k), (k, SIDE)):
        x = KINDS[name](rng, shape)
        made.append((x + 1j * KINDS[name](rng, shape) if dtype == "complex64" else x).astype(dtype))
    return made[0], made[1]


def ways(on_gpu: bool, dtype: str) -> dict[str, tuple[str | None, Callable[[Setting], Any]]]:
    """Who multiplies: the precision that is asked for, and the call."""
    own = {f"gett {name}": (name, Setting.gett) for name in BOUNDS if dtype in (PRECISIONS[name] or (dtype,))}
    if not on_gpu:
        return {"gett ieee": own["gett ieee"], "numpy": (None, Setting.numpy_einsum)}
    rivals = {
        "cublas": Setting.cublas,
        "cutensor": lambda s: s.cutensor("DEFAULT"),  # of matrices cuBLAS's product, whatever algorithm is asked for
        "cutensor, two k": lambda s: two_modes(s).cutensor("DEFAULT"),
        "torch": Setting.torch_einsum,
    }
    rounded = (None, "tf32") if dtype in (PRECISIONS["tf32"] or ()) else (None,)
    others = {f"{name}{' tf32' if p else ''}": (p, call) for name, call in rivals.items() for p in rounded}
    return {**own, **others}


def two_modes(setting: Setting) -> Setting:
    """The same product with k in two modes that lie in either order, so that it is no matrix product."""
    ((a, b, d),) = setting.sets
    k = a.shape[1]
    fast = 1 << (k.bit_length() // 2)
    a = a.reshape(SIDE, k // fast, fast)
    b = b.reshape(k // fast, fast, SIDE).swapaxes(0, 1).copy()
    return Setting("mkp,pkn->mn", setting.dtype, setting.precision, [(a, b, d)], setting.libraries)


def measure(on_gpu: bool, dtype: str) -> Iterator[dict[str, Any]]:
    """The errors of all ways for one kind of data and one depth after the other."""
    xp: Any = np
    if on_gpu:
        import cupy as xp
    libraries = Libraries()
    depths = DEPTHS if on_gpu else DEPTHS_CPU
    jobs = [(name, k) for name in KINDS for k in depths if k <= DEEPEST.get(name, 1 << 16)]
    for name, k in tqdm(jobs, desc="accuracy", unit="product", leave=False, disable=None):
        a, b = map(xp.asarray, operands(name, k, dtype))
        found: dict[str, Any] = {}
        for way, (precision, call) in ways(on_gpu, dtype).items():
            d = xp.zeros((SIDE, SIDE), dtype)
            setting = Setting(SUBSCRIPTS, dtype, precision, [(a, b, d)], libraries)
            try:
                found[way] = errors(a, b, _run(setting, call, on_gpu, xp))
            except (GettError, ImportError, RuntimeError) as error:  # a library that is not there
                found[way] = str(error).splitlines()[0][:100]
        yield {"data": name, "k": k, "dtype": dtype, "errors": found}


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
    heading = "largest error of a component in units of 2^-24 of its products' magnitudes (median), by k"
    lines = [f"{rows[0]['dtype']}: {heading}"]
    for way in rows[0]["errors"]:
        told = [row["errors"][way] for row in rows if isinstance(row["errors"][way], str)]
        if told:
            lines += ["", f"{way}: {told[0]}"]
            continue
        lines += ["", f"{way:<20}" + "".join(f"{k:>16}" for k in depths)]
        for name in dict.fromkeys(row["data"] for row in rows):
            at = {row["k"]: row["errors"][way] for row in rows if row["data"] == name}
            cells = (f"{at[k][0]:.3g} ({at[k][1]:.2g})" if k in at else "" for k in depths)
            lines.append(f"  {name:<18}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def broken(rows: list[dict[str, Any]]) -> list[str]:
    """Where gett's errors exceed what it promises."""
    out = []
    for row in rows:
        for name, bound in BOUNDS.items():
            found, promised = row["errors"].get(f"gett {name}"), bound(row["k"], PRODUCTS[row["dtype"]])
            if isinstance(found, str) or (found is not None and not found[0] <= promised):
                out.append(f"{name}, {row['data']}, k = {row['k']}: {found}, promised {promised:.0f}")
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


def main(*, on_gpu: bool, dtype: str = "float32", json_path: str | None = None, plot_path: str | None = None) -> int:
    """Measure, print, and write what is asked for; 1 where an error is larger than promised."""
    rows = list(measure(on_gpu, dtype))
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
