#!/usr/bin/env python3
"""Trains one model with PyTorch in one process and with torch-exchange on two ranks: train_like_python.py COMMAND...,
where COMMAND starts torch-exchange. Weights of Python's are loaded there, and its weights here, by state_dict. The
losses and the weights in the end must be equal to 1e-12, in f64. Exits with 77, a skipped test, without PyTorch."""

import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from torch import nn
except ImportError as error:
    print(f"skipped: {sys.executable} has no PyTorch: {error}")
    sys.exit(77)

from exchanged_files import bytes_of, read_safetensors, write_safetensors

BATCH, STEPS = 6, 20
TOLERANCE = 1e-12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.hidden, self.layer_norm = nn.Linear(4 * 4 * 4, 16), nn.LayerNorm(16)
        self.out = nn.Linear(16, 5)
        self.double()

    def forward(self, x):
        features = torch.relu(self.norm(self.conv(x))).flatten(1)
        return self.out(self.layer_norm(nn.functional.gelu(self.hidden(features))))


def train(net, images, labels):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for x, y in zip(images, labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = Net()
    images, labels = torch.randn(STEPS, BATCH, 1, 6, 6, dtype=torch.float64), torch.randint(5, (STEPS, BATCH))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_safetensors(folder / "of-python.safetensors", net.state_dict())
        (folder / "images").write_bytes(bytes_of(images))
        (folder / "labels").write_bytes(bytes_of(labels.double()))
        done = subprocess.run([*sys.argv[1:], name], stdout=subprocess.PIPE, text=True, check=True)
        found = [float(line) for line in done.stdout.split()]
        trained = Net()
        # Strict: no name is missing, and none too many.
        trained.load_state_dict(read_safetensors(folder / "of-lockstep.safetensors"), strict=True)
    expected = train(net, images, labels)
    assert len(found) == STEPS, f"{len(found)} losses; expected {STEPS}"
    furthest = max(abs(ours - theirs) for ours, theirs in zip(found, expected))
    assert furthest <= TOLERANCE, f"losses differ by {furthest}: {found}; expected {expected}"
    assert len(set(expected)) == STEPS, "nothing was trained"
    for name, tensor in net.state_dict().items():
        distance = (trained.state_dict()[name] - tensor).abs().max().item()
        assert distance <= TOLERANCE * 100, f"{name} differs by {distance}"
    print(f"PyTorch {torch.__version__}: {STEPS} losses are equal to {furthest:.1e}, and weights load in both directions")


if __name__ == "__main__":
    main()
