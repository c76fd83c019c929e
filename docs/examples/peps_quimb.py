"""The norm of a PEPS in quimb: the network is quimb's, the contractions are gett's."""

import quimb.tensor as qtn

import gett


def main():
    peps = qtn.PEPS.rand(3, 3, bond_dim=3, seed=1, dtype="complex128")
    network = peps.H & peps  # <psi|psi>, 18 tensors
    theirs = network.contract(all, optimize="greedy")
    tree = network.contraction_tree(optimize="greedy")
    ours = tree.contract(network.arrays, implementation=(gett.einsum, gett.tensordot))

    site, above = peps[1, 1], peps[0, 1]  # one bond by hand: the tensors' labels are any hashable objects
    bond = gett.einsum(site.data, site.inds, above.data, above.inds, [*(set(site.inds) ^ set(above.inds))])
    print(f"quimb {theirs.real:.8e}")
    print(f"gett  {complex(ours).real:.8e}")
    print("the same to 12 digits:", abs(theirs - ours) < 1e-12 * abs(theirs))
    print("axes of two sites contracted over their bond:", bond.ndim)
    return theirs, complex(ours)


if __name__ == "__main__":
    main()
