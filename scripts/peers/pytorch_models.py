"""lockstep's three models in PyTorch, for train_pytorch.py, train_horovod.py and ../gpu-peer.py."""
import math

import torch
from torch import nn
from torch.nn import functional

from measure import (CLASSES, CONTEXT, CONVNET_HIDDEN, EMBEDDING_STDDEV, FILTERS, HEADS, HIDDEN, LAYERS, LEARNING_RATE,
                     MOMENTUM, NORM_EPSILON, SIDE, VOCABULARY, WIDTH, batches)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                         nn.Linear(HIDDEN, CLASSES))


def convnet():
    first, second = FILTERS
    pooled = (SIDE - 4) // 2
    return nn.Sequential(nn.Conv2d(1, first, 3), nn.ReLU(), nn.Conv2d(first, second, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(pooled * pooled * second, CONVNET_HIDDEN), nn.ReLU(),
                         nn.Linear(CONVNET_HIDDEN, CLASSES))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = (nn.LayerNorm(WIDTH, eps=NORM_EPSILON) for _ in range(2))
        self.qkv, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * WIDTH, WIDTH))

    def attention(self, x):
        windows, context, _ = x.shape
        q, k, v = (part.view(windows, context, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for part in self.qkv(x).split(WIDTH, dim=2))
        y = causal_attention(q, k, v)
        return self.output(y.transpose(1, 2).reshape(windows, context, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def causal_attention(q, k, v):
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    # Before PyTorch 2.0.
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    future = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, -math.inf).softmax(-1) @ v


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, eps=NORM_EPSILON)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=EMBEDDING_STDDEV)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        # The output weights are those of the embedding.
        return functional.linear(self.norm(self.blocks(x)), self.tokens.weight)


def make_model(name, channels_last):
    torch.manual_seed(1)
    model = {"mlp": mlp, "convnet": convnet, "gpt": Gpt}[name]()
    return model.to(memory_format=torch.channels_last) if channels_last else model


def make_optimizer(name, parameters, **options):
    if name == "gpt":
        return torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0, **options)
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM, **options)


def make_batches(name, rank, size, channels_last):
    made = []
    for inputs, labels in batches(name, rank, size):
        inputs, labels = torch.from_numpy(inputs), torch.from_numpy(labels)
        if name != "gpt":
            inputs = inputs.permute(0, 3, 1, 2).contiguous()
            if channels_last:
                inputs = inputs.to(memory_format=torch.channels_last)
        made.append((inputs, labels))
    return made


def loss_of(output, labels):
    """The mean over the samples, or tokens."""
    return functional.cross_entropy(output.flatten(0, -2), labels.flatten())


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())
