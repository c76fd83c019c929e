"""Ground states of Heisenberg models by gradients, as an MPS and as a PEPS: quimb's optimizer, PyTorch's autograd."""

import quimb as qu
import quimb.tensor as qtn


def minimized(state, energy, steps, **constants):
    """The state of lowest energy that quimb's optimizer reaches, and its energy."""
    optimizer = qtn.TNOptimizer(
        state, energy, loss_constants=constants, autodiff_backend="torch", optimizer="l-bfgs-b", progbar=False
    )
    with qtn.contract_backend("gett"):  # which is imported by this name; gradients are contractions by gett too
        found = optimizer.optimize(steps)
        return found, float(energy(found, **constants))


def chain_energy(psi, hamiltonian):
    """Of an MPS, through the whole network of the state, the operator and the state again."""
    ket, operator, bra = qtn.tensor_network_align(psi, hamiltonian, psi.H)
    return (bra & operator & ket).contract(all) / psi.make_norm().contract(all)


def plane_energy(psi, terms):
    """Of a PEPS, bond after bond."""
    return psi.compute_local_expectation_exact(terms, optimize="greedy")


def main():
    sites = 8
    exact = qu.groundenergy(qu.ham_heis(sites, sparse=True))
    state = qtn.MPS_rand_state(sites, bond_dim=8, seed=1)
    _, chain = minimized(state, chain_energy, 100, hamiltonian=qtn.MPO_ham_heis(sites))
    print(f"chain of {sites}, exact: {exact:.6f}")
    print("the MPS is within 0.001 of it:", 0 <= chain - exact < 1e-3)

    rows, columns = 3, 2
    exact_plane = qu.groundenergy(qu.ham_heis_2D(rows, columns, sparse=True))
    peps = qtn.PEPS.rand(rows, columns, bond_dim=3, seed=1)
    _, plane = minimized(peps, plane_energy, 100, terms=qtn.ham_2d_heis(rows, columns).terms)
    print(f"{rows} x {columns} sites, exact: {exact_plane:.6f}")
    print("the PEPS is within 0.001 of it:", 0 <= plane - exact_plane < 1e-3)
    return (chain, exact), (plane, exact_plane)


if __name__ == "__main__":
    main()
