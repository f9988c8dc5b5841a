"""Global batches, cut into shards."""

import torch.utils.data

from ._extension import core
from ._random import seeded


class Loader(torch.utils.data.DataLoader):
    """What :meth:`lockstep.torch.DataParallel.loader` returns. Each iteration is an epoch, and the next one is of the
    next epoch. ``len`` is the number of its steps, the same on all ranks."""

    def __init__(self, dataset, sampler, *, collate_fn=None, **options):
        collate = collate_fn or torch.utils.data.default_collate
        super().__init__(_Shards(dataset, collate), batch_sampler=sampler, collate_fn=list, **options)

    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """Starts the next iteration at this step of this epoch, both counted from 0. For a training that goes on after a
        checkpoint. ::

            loader.set_epoch(*divmod(int(net.steps), len(loader)))
        """
        self.batch_sampler.epoch, self.batch_sampler.step = epoch, step

    @property
    def epoch(self) -> int:
        """That of the next iteration."""
        return self.batch_sampler.epoch


class ShardSampler(torch.utils.data.Sampler):
    """In each step the rows of this rank's shards, each with what its random numbers depend on."""

    def __init__(self, count, batch_size, drop_last, seed, shuffle, shards, own):
        self._count, self._batch_size, self._drop_last = count, batch_size, drop_last
        self._seed, self._shuffle, self._shards, self._own = seed, shuffle, shards, own
        self.epoch = self.step = 0

    def __len__(self):
        whole, rest = divmod(self._count, self._batch_size)
        return whole + (rest > 0 and not self._drop_last)

    def __iter__(self):
        # Once the first step is asked for: with workers, DataLoader makes two iterators, and uses one.
        epoch, first_step = self.epoch, self.step
        self.epoch, self.step = epoch + 1, 0
        order = range(self._count)
        if self._shuffle:
            order = core.sample_order(self._count, self._seed, epoch)
        for step in range(first_step, len(self)):
            batch = order[step * self._batch_size:(step + 1) * self._batch_size]
            rows_of = lambda shard: list(batch[slice(*core.rows_of_shard(len(batch), self._shards, shard))])
            yield [(f"data {self._seed} {epoch} {step} {shard}", rows_of(shard)) for shard in self._own]


class _Shards(torch.utils.data.Dataset):
    """A dataset whose items are the samples of a shard."""

    def __init__(self, dataset, collate):
        self._dataset, self._collate = dataset, collate

    def __getitem__(self, shard):
        purpose, rows = shard
        if not rows:
            return None
        with seeded(purpose):
            take = getattr(self._dataset, "__getitems__", None)
            return self._collate(take(rows) if take else [self._dataset[row] for row in rows])
