"""A random circuit as a tensor network: cotengra finds the path and slices it, gett contracts."""

import cotengra as ctg
import numpy as np

import gett


def circuit(qubits=10, depth=6, seed=0):
    """Arrays and their labels: a chain of random gates on pairs; the open labels are the final state's."""
    rng = np.random.default_rng(seed)
    arrays, labels, wires, new = [], [], [], iter(range(10_000))
    for _ in range(qubits):
        wires.append(next(new))
        arrays.append(np.array([1.0, 0.0], complex))
        labels.append((wires[-1],))
    for layer in range(depth):
        for q in range(layer % 2, qubits - 1, 2):
            gate, _ = np.linalg.qr(rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4)))
            after = next(new), next(new)
            arrays.append(gate.reshape(2, 2, 2, 2))
            labels.append((*after, wires[q], wires[q + 1]))
            wires[q], wires[q + 1] = after
    return arrays, labels, tuple(wires)


def main():
    arrays, labels, wires = circuit()
    bits = (0, 1) * (len(wires) // 2)
    closed = [np.eye(2, dtype=complex)[b] for b in bits]  # <0101...|
    shapes = [x.shape for x in [*arrays, *closed]]
    inputs = [*labels, *((w,) for w in wires)]
    tree = ctg.array_contract_tree(inputs, (), shapes=shapes, optimize="greedy")
    tree.slice_(target_slices=4)
    amplitude = complex(tree.contract([*arrays, *closed], implementation=(gett.einsum, gett.tensordot)))

    operands = [x for pair in zip(arrays, labels, strict=True) for x in pair]
    state = gett.einsum(*operands, wires)  # all amplitudes at once, by gett's own path
    print("slices:", tree.nslices)
    print(f"amplitude of |{''.join(map(str, bits))}> {amplitude:.8f}")
    print("the same as in the whole state, to 1e-12:", abs(amplitude - state[bits]) < 1e-12)
    print("the state's norm is 1:", abs(np.linalg.norm(state) - 1) < 1e-12)
    return amplitude, state[bits]


if __name__ == "__main__":
    main()
