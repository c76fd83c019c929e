"""Two-site DMRG of a Heisenberg chain: one plan for the effective Hamiltonian, called by the eigensolver."""

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

import gett

APPLY = "awb,wvsS,vxtT,cxd,bSTd->astc"  # environment, two sites of the Hamiltonian, environment, the two-site state


def heisenberg():
    """The matrix product operator's tensor: its two bonds, then the site's row and column."""
    up, z, one = np.array([[0.0, 1.0], [0.0, 0.0]]), np.diag([0.5, -0.5]), np.eye(2)
    w = np.zeros((5, 5, 2, 2))
    w[0, 0] = w[4, 4] = one
    w[1, 0], w[2, 0], w[3, 0] = up, up.T, z
    w[4, 1], w[4, 2], w[4, 3] = up.T / 2, up / 2, z
    return w


def optimise(left, w, right, theta):
    """The lowest eigenvector of the effective Hamiltonian; the plan is made once and called for every product."""
    plan = gett.plan(APPLY, left, w, w, right, theta)
    shape, size = theta.shape, theta.size

    def apply(x):
        return plan(left, w, w, right, x.reshape(shape)).ravel()

    operator = LinearOperator((size, size), matvec=apply, dtype=theta.dtype)
    values, vectors = eigsh(operator, k=1, which="SA", v0=theta.ravel(), tol=1e-10)
    return values[0], vectors[:, 0].reshape(shape)


def dmrg(sites=8, bond=16, sweeps=2):
    """The ground state's energy."""
    w, rng = heisenberg(), np.random.default_rng(0)
    first, last = np.zeros((1, 5, 1)), np.zeros((1, 5, 1))
    first[0, 4, 0] = last[0, 0, 0] = 1
    tensors = [np.zeros((1, 2, 1)) for _ in range(sites)]
    for i, tensor in enumerate(tensors):
        tensor[0, i % 2, 0] = 1  # up, down, up, down
    lefts, rights = {0: first}, {sites - 1: last}
    for i in range(sites - 1, 0, -1):
        rights[i - 1] = gett.einsum("asb,wvsS,cSd,bvd->awc", tensors[i], w, tensors[i], rights[i])
    energy = 0.0
    for _ in range(sweeps):
        for forward in (True, False):
            places = range(sites - 1) if forward else range(sites - 2, -1, -1)
            for i in places:
                theta = gett.einsum("asb,btc->astc", tensors[i], tensors[i + 1])
                theta = theta + 1e-3 * rng.standard_normal(theta.shape)
                energy, theta = optimise(lefts[i], w, rights[i + 1], theta)
                a, s, t, c = theta.shape
                u, values, v = np.linalg.svd(theta.reshape(a * s, t * c), full_matrices=False)
                kept = min(bond, int((values > 1e-10).sum()))
                u, values, v = u[:, :kept], values[:kept], v[:kept]
                values = values / np.linalg.norm(values)
                tensors[i] = (u if forward else u * values).reshape(a, s, kept)
                tensors[i + 1] = (values[:, None] * v if forward else v).reshape(kept, t, c)
                if forward:
                    lefts[i + 1] = gett.einsum("asb,wvsS,awc,cSd->bvd", tensors[i], w, lefts[i], tensors[i])
                else:
                    rights[i] = gett.einsum("asb,wvsS,cSd,bvd->awc", tensors[i + 1], w, tensors[i + 1], rights[i + 1])
    return energy


def exact(sites=8):
    """The same by diagonalising the whole Hamiltonian."""
    plus, z = np.array([[0.0, 1.0], [0.0, 0.0]]), np.diag([0.5, -0.5])
    full = np.zeros((2**sites, 2**sites))
    for i in range(sites - 1):
        for factor, x, y in ((0.5, plus, plus.T), (0.5, plus.T, plus), (1.0, z, z)):
            full += factor * np.kron(np.kron(np.eye(2**i), np.kron(x, y)), np.eye(2 ** (sites - i - 2)))
    return np.linalg.eigvalsh(full)[0]


def main():
    found, wanted = dmrg(), exact()
    print(f"DMRG                {found:.8f}")
    print(f"exact               {wanted:.8f}")
    print("the same to 1e-7:", abs(found - wanted) < 1e-7)
    return found, wanted


if __name__ == "__main__":
    main()
