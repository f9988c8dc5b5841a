"""DataParallel: trains a net with batch norm and dropout, on samples that are augmented, in 6 shards and in 8. Does so on
the job's first 1, 2, 3 and 4 ranks, as far as it has them, and goes on after a checkpoint on other ones: always to the
same bytes, of which rank 0 prints digests."""

import hashlib
import io

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset

import lockstep.torch

dist.init_process_group("lockstep")
rank, size = dist.get_rank(), dist.get_world_size()
STEPS = 9


class Samples(Dataset):
    """They draw random numbers, as augmentation does."""

    def __len__(self):
        return 43  # the last batch has 3: less than there are shards

    def __getitem__(self, row):
        values = torch.randn(6, generator=torch.Generator().manual_seed(row))
        return values + 0.1 * torch.rand(6), row % 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 32), nn.BatchNorm1d(32), nn.Linear(32, 3)
        self.wide = nn.Linear(32, 3).double()
        self.unused = nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("forwards", torch.tensor(100))

    def forward(self, values):
        hidden = nn.functional.dropout(torch.relu(self.norm(self.first(values))), 0.2, self.training)
        self.forwards = self.forwards + 1  # also of a batch whose first shards are empty
        if self.training:
            self.seen = self.seen + hidden.detach().mean()
        return self.last(hidden) + self.wide(hidden.double()).float()


def train(group, shards, *, until=STEPS, checkpoint=None, workers=0):
    """The digest of what the ranks of a group end with, and a checkpoint."""
    torch.manual_seed(rank)  # other initial weights on each rank
    net = lockstep.torch.DataParallel(Net(), shards, seed=5, attest_every=2, group=group)
    assert f"shards={shards}, seed=5, threads=1, attest_every=2" in repr(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    loader = net.loader(Samples(), batch_size=20, shuffle=True, num_workers=workers)

    def loss_of(shard):
        values, labels = shard
        net.train(len(labels) > 1)  # otherwise batch norm has no statistics
        return nn.functional.cross_entropy(net(values), labels), len(labels)

    if checkpoint:
        state = torch.load(io.BytesIO(checkpoint))
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
    loader.set_epoch(*divmod(int(net.steps), len(loader)))
    while int(net.steps) < until:
        for of_rank in loader:
            optimizer.zero_grad()
            loss = net.backward(of_rank, loss_of)
            optimizer.step()
            if int(net.steps) == until:
                break
    assert net.module.unused.weight.grad is None
    lockstep.torch.check_replicas(net, group)
    digest = hashlib.sha256(b"".join(each.numpy().tobytes() for each in net.state_dict().values()))
    digest.update(repr(loss).encode())
    saved = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    return digest.hexdigest(), saved.getvalue()


groups = [dist.new_group(list(range(ranks))) for ranks in range(1, size + 1)]
for shards in (6, 8):
    possible = groups[:shards]
    digests = [train(group, shards, workers=ranks % 2)[0] for ranks, group in enumerate(possible) if rank <= ranks]
    if rank < len(possible):
        _, checkpoint = train(possible[-1], shards, until=4)
    if rank <= len(possible) // 2:
        digests.append(train(groups[len(possible) // 2], shards, checkpoint=checkpoint)[0])
    of_ranks = [None] * size
    dist.all_gather_object(of_ranks, digests)
    assert len(set(sum(of_ranks, []))) == 1, of_ranks
    if rank == 0:
        print(shards, digests[0])
