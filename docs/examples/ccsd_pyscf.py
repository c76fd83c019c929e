"""Coupled cluster in PySCF, with every contraction done by gett."""

from pyscf import cc, gto, lib, scf

import gett


def energy(field, einsum):
    """The correlation energy, with `lib.einsum` replaced for as long as it takes."""
    before = lib.einsum
    lib.einsum = einsum
    try:
        return cc.rccsd.RCCSD(field).run().e_corr
    finally:
        lib.einsum = before


def main():
    molecule = gto.M(atom="O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692", basis="6-31g", verbose=0)
    field = scf.RHF(molecule).run(conv_tol=1e-12)
    theirs = energy(field, lib.einsum)
    calls = 0

    def counted(*arguments, **options):
        nonlocal calls
        calls += 1
        return gett.einsum(*arguments, **options)

    ours = energy(field, counted)
    print(f"PySCF's einsum {theirs:.10f} hartree")
    print(f"gett.einsum    {ours:.10f} hartree")
    print("the same to 1e-12:", abs(ours - theirs) < 1e-12)
    print("contractions by gett, more than 100:", calls > 100)
    return theirs, ours


if __name__ == "__main__":
    main()
