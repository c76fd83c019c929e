"""A small model in PyTorch trained through gett: a triangle update, attention, a bilinear layer; also compiled."""

import torch

import gett

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Triangle(torch.nn.Module):
    """AlphaFold's outgoing update of edges by the edges around a third node."""

    def __init__(self, channels):
        super().__init__()
        self.left, self.right = (torch.nn.Linear(channels, channels) for _ in range(2))

    def forward(self, edges):
        return gett.einsum("bikc,bjkc->bijc", self.left(edges), self.right(edges))


class Attention(torch.nn.Module):
    """Attention of each node's edges, in heads that are one more label."""

    def __init__(self, channels, heads):
        super().__init__()
        self.query, self.key, self.value = (
            torch.nn.Parameter(torch.randn(channels, heads, channels) / channels) for _ in range(3)
        )

    def forward(self, edges):
        q, k, v = (gett.einsum("bijc,chd->bijhd", edges, w) for w in (self.query, self.key, self.value))
        weights = torch.softmax(gett.einsum("bijhd,bikhd->bihjk", q, k), -1)
        return gett.einsum("bihjk,bikhd->bijd", weights, v)


class Bilinear(torch.nn.Module):
    """`x W y + bias`, as torch.nn.Bilinear has it: a network of three tensors."""

    def __init__(self, first, second, outputs):
        super().__init__()
        self.weight = torch.nn.Parameter(0.3 * torch.randn(outputs, first, second))
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x, y):
        return gett.einsum("nf,ofs,ns->no", x, self.weight, y) + self.bias


class Model(torch.nn.Module):
    """One number for each graph, of its edges."""

    def __init__(self, channels):
        super().__init__()
        self.triangle, self.attention = Triangle(channels), Attention(channels, 2)
        self.bilinear = Bilinear(channels, channels, 1)

    def forward(self, edges):
        updated = torch.tanh(self.triangle(edges))
        updated = (updated + self.attention(updated)).mean((1, 2))
        return self.bilinear(updated, edges.mean((1, 2)))


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    teacher, model = Model(4).to(DEVICE), Model(4).to(DEVICE)
    edges = torch.randn(32, 6, 6, 4).to(DEVICE)
    with torch.no_grad():
        teacher.bilinear.weight *= 10
        wanted = teacher(edges)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(edges), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    learned = losses[-1] < 0.5 * losses[0]
    print("the loss has halved:", learned)

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)  # the whole model is one graph
    pair = [
        torch.autograd.grad(torch.nn.functional.mse_loss(f(edges), wanted), tuple(model.parameters()))
        for f in (model, compiled)
    ]
    same = all(torch.allclose(x, y) for x, y in zip(*pair, strict=True))
    print("gradients of the compiled model:", same)

    parameters = dict(model.named_parameters())
    single = edges[:3, None]

    def output(parameters, edges):
        return torch.func.functional_call(model, parameters, (edges,)).sum()

    samples = torch.func.vmap(torch.func.grad(output), in_dims=(None, 0))(parameters, single)
    one_by_one = torch.autograd.grad(output(parameters, single[2]), tuple(parameters.values()))
    alike = all(torch.allclose(samples[name][2], x) for name, x in zip(parameters, one_by_one, strict=True))
    print("gradients of each graph by vmap:", alike)
    torch.set_default_dtype(torch.float32)
    return learned, same, alike


if __name__ == "__main__":
    main()
