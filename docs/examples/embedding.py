"""gett inside a library: optional, plans held, memory bounded, errors turned into the library's own."""

import numpy as np

try:
    import gett
except ImportError:  # the library works without gett, by NumPy
    gett = None


class LadderError(ValueError):
    """What this library raises for its users' mistakes."""


class Ladder:
    """`r_ijab += sum_ef t_ijef v_aebf` for one shape, called in every iteration.

    Args:
        occupied: Number of occupied orbitals.
        virtual: Number of virtual orbitals.
        memory: Most device memory that a call may take for copies and partial sums, in bytes.
    """

    SUBSCRIPTS = "ijef,aebf->ijab"

    def __init__(self, occupied, virtual, memory=64 << 20):
        self.plan = None
        if gett is not None:
            t, v = ((occupied,) * 2 + (virtual,) * 2, "float64"), ((virtual,) * 4, "float64")
            self.plan = gett.plan(self.SUBSCRIPTS, t, v, out=t, workspace_limit=memory)

    def __call__(self, t, v, r):
        """Add to `r` in place."""
        if self.plan is None:
            r += np.einsum(self.SUBSCRIPTS, t, v, optimize=True)
            return r
        try:
            return self.plan(t, v, beta=1, out=r)
        except gett.errors.GettError as error:  # the base of all errors of gett
            raise LadderError(f"amplitudes and integrals do not fit this ladder: {error}") from error


def main():
    ladder = Ladder(3, 5)
    rng = np.random.default_rng(0)
    t, v = rng.standard_normal((3, 3, 5, 5)), rng.standard_normal((5, 5, 5, 5))
    r = np.ones((3, 3, 5, 5))
    ladder(t, v, r)
    right = np.allclose(r, 1 + np.einsum("ijef,aebf->ijab", t, v))
    print("one step is right:", right)
    print("workspace of the plan, bytes:", ladder.plan.workspace_bytes)
    try:
        ladder(t, v[:4], r)
    except LadderError as error:
        refused = str(error)
    print("refused:", refused.splitlines()[0])
    return right, refused


if __name__ == "__main__":
    main()
