#!/usr/bin/env python3
"""Trains two models with PyTorch in one process and with torch-jobs on two ranks: train_like_python.py COMMAND...,
where COMMAND starts the job exchange of torch-jobs. Of the first, weights of Python's are loaded there, and its weights here, by
state_dict. The second is a script of Python's, which is loaded there and saved again for Python. The losses and the
weights in the end must be equal to 1e-12, in f64. Exits with 77, a skipped test, without PyTorch."""

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


class Layer(nn.Module):
    """With a buffer that the script replaces, and another that it changes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(36, 36)
        self.register_buffer("average", torch.zeros(36))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        y = torch.tanh(self.linear(x) + self.average)
        if self.training:
            self.average = 0.9 * self.average + 0.1 * x.detach().mean(0)
            self.calls.add_(1)
        return y


class Script(nn.Module):
    """With a parameter of two names, one that stays as it is, and a layer that keeps a list of its parameters."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 6, batch_first=True)
        self.layers = nn.Sequential(Layer(), nn.Linear(36, 36, bias=False), nn.GELU(), nn.LayerNorm(36))
        self.out = nn.Linear(36, 5)
        self.scale = nn.Parameter(torch.full((5,), 2.0), requires_grad=False)
        self.layers[1].weight = self.layers[0].linear.weight
        self.double()

    def forward(self, x):
        states, _ = self.rnn(x.squeeze(1))
        return self.out(self.layers(states.flatten(1))) * self.scale


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


def compare(what, found, expected, trained, net):
    """The losses, and the state_dict of the trained module with that of `net`."""
    assert len(found) == STEPS, f"{what}: {len(found)} losses; expected {STEPS}"
    furthest = max(abs(ours - theirs) for ours, theirs in zip(found, expected))
    assert furthest <= TOLERANCE, f"{what}: losses differ by {furthest}: {found}; expected {expected}"
    assert len(set(expected)) == STEPS, f"{what}: nothing was trained"
    assert trained.keys() == net.state_dict().keys(), f"{what}: {list(trained)}; expected {list(net.state_dict())}"
    for name, tensor in net.state_dict().items():
        distance = (trained[name] - tensor).abs().max().item()
        assert distance <= TOLERANCE * 100, f"{what}: {name} differs by {distance}"
    print(f"PyTorch {torch.__version__}, {what}: {STEPS} losses are equal to {furthest:.1e}, and weights load in both "
          "directions")


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net, script = Net(), Script()
    images, labels = torch.randn(STEPS, BATCH, 1, 6, 6, dtype=torch.float64), torch.randint(5, (STEPS, BATCH))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_safetensors(folder / "of-python.safetensors", net.state_dict())
        torch.jit.script(script).save(str(folder / "of-python.pt"))
        (folder / "images").write_bytes(bytes_of(images))
        (folder / "labels").write_bytes(bytes_of(labels.double()))
        done = subprocess.run([*sys.argv[1:], name], stdout=subprocess.PIPE, text=True, check=True)
        found = [float(line) for line in done.stdout.split()]
        trained = Net()
        # Strict: no name is missing, and none too many.
        trained.load_state_dict(read_safetensors(folder / "of-lockstep.safetensors"), strict=True)
        trained_script = torch.jit.load(str(folder / "of-lockstep.pt"))
        tied = "layers.1.weight"
        names = read_safetensors(folder / "script-of-lockstep.safetensors").keys() | {tied}
    compare("module", found[:STEPS], train(net, images, labels), trained.state_dict(), net)
    compare("script", found[STEPS:], train(script, images, labels), trained_script.state_dict(), script)
    assert names == script.state_dict().keys(), f"script: weights are called {names}"
    assert tied not in dict(trained_script.named_parameters()), f"script: {tied} is a parameter of its own"


if __name__ == "__main__":
    main()
