"""Attention and AlphaFold's triangle update in PyTorch, and a gradient through both."""

import torch

import gett

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def attention(q, k, v):
    """Heads stay where they are, between sequence and depth: nothing is transposed."""
    scores = gett.einsum("bqhd,bkhd->bhqk", q, k)
    weights = torch.softmax(scores * q.shape[-1] ** -0.5, dim=-1)
    return gett.einsum("bhqk,bkhd->bqhd", weights, v)


def triangle_update(left, right, gate):
    """The outgoing triangle update, its gate applied as the result is stored."""

    def gated(d, g):
        return d * gett.ops.sigmoid(g)

    return gett.contract("bikc,bjkc->bijc", left, right, epilogue=gated, epilogue_args=(gate,))


def main():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 48, 4, 16, device=DEVICE) for _ in range(3))
    heads = (x.transpose(1, 2) for x in (q, k, v))
    reference = torch.nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2)
    close = torch.allclose(attention(q, k, v), reference, atol=1e-5)
    print("attention as scaled_dot_product_attention:", close)

    left, right, gate = (torch.randn(1, 24, 24, 16, device=DEVICE) for _ in range(3))
    wanted = torch.einsum("bikc,bjkc->bijc", left, right) * torch.sigmoid(gate)
    triangle = torch.allclose(triangle_update(left, right, gate), wanted, atol=1e-4)
    print("triangle update as torch.einsum and a gate:", triangle)

    small = [torch.randn(1, 3, 2, 2, device=DEVICE, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    gradient = torch.autograd.gradcheck(attention, small)
    print("gradients are right:", gradient)
    return close, triangle, gradient


if __name__ == "__main__":
    main()
