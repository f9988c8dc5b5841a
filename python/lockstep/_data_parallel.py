"""Training in shards."""

import math
import typing

import torch
import torch.distributed
import torch.utils.data

from . import InvalidArgument
from ._extension import core
from ._loader import Loader, ShardSampler
from ._random import seeded
from ._replicas import check_replicas, digest_of


class DataParallel(torch.nn.Module):
    """A module that the ranks train together. Its parameters have the same bytes after each step, on one rank or on
    any other number of them up to ``shards``, also if the training goes on, after a checkpoint, on another number. ::

        net = lockstep.torch.DataParallel(Net(), shards=8)
        loader = net.loader(dataset, batch_size=64, shuffle=True)
        optimizer = torch.optim.AdamW(net.parameters())

        def loss_of(shard):
            images, labels = shard
            return torch.nn.functional.cross_entropy(net(images), labels), len(labels)

        for epoch in range(3):
            for shards in loader:
                optimizer.zero_grad()
                loss = net.backward(shards, loss_of)
                optimizer.step()

    Each global batch is cut into ``shards``, and each rank has some of them, side by side. The gradient of a shard is
    computed by itself, and all are added up in one tree over the shards, wherever they were computed. So bits depend on
    the shards, not on the ranks. If the numbers of shards and of ranks are powers of two, all ranks have the same amount of
    work; of 8 shards, 3 ranks have 2, 2 and 4.

    All ranks make this object, with modules of the same parameters and buffers, which become those of rank 0. The group
    is one of the backend ``"lockstep"``, and the module is on the CPU.

    The bits also depend on these:

    - **Threads.** PyTorch cuts sums for its threads. This sets their number for the process
      (``torch.set_num_threads``): ``threads``, on any number of ranks. Start a rank for each core.
    - **Random numbers.** Those of torch, of Python and of NumPy that ``loss_of`` draws, such as dropout's, and those
      that the dataset of a loader draws, depend on ``seed``, the step and the shard, also in workers. Generators of
      your own do not.
    - **Batch norm.** Each shard is normalized by itself, so it needs two samples. Running statistics become the mean
      over the shards, weighted by samples; other buffers, such as counters, those of the first shard.
      ``SyncBatchNorm`` is refused.
    - **The rest of the program.** PyTorch's version and the kind of processor; what each rank does to the parameters,
      such as an optimizer's step, and to denormal numbers (``torch.set_flush_denormal``), must be the same.

    With ``attest_every=N``, every N-th step begins with :func:`lockstep.torch.check_replicas`, so that a rank whose
    weights or buffers have changed is named before the others follow it."""

    def __init__(self, module: torch.nn.Module, shards: int = 8, *, seed: int = 0, threads: int = 1,
                 attest_every: int | None = None, group: torch.distributed.ProcessGroup | None = None):
        super().__init__()
        _trained(module)
        _require_layers(module)
        if attest_every is not None and attest_every < 1:
            raise InvalidArgument(f"attest_every={attest_every}: expected 1 or more")
        self.module = module
        self.shards = shards
        #: How many steps were made. ``state_dict`` has it, so that random numbers go on after a checkpoint.
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self._seed, self._threads, self._attest_every = seed, threads, attest_every
        self._group, self._backend = group, _backend_of(group)
        self._rank, self._ranks = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
        self._own = range(*core.shards_of_rank(shards, self._ranks, self._rank))
        self._computes = False
        torch.set_num_threads(threads)
        self._agree(f"DataParallel: {shards} shards, seed={seed}, threads={threads}, attest_every={attest_every}, of "
                    f"{_text_of(module)}")
        for tensor in (*self.parameters(), *self.buffers()):
            torch.distributed.broadcast(tensor.detach(), group_src=0, group=group)
        self._left = list(_Buffers(module))

    def extra_repr(self):
        return f"shards={self.shards}, seed={self._seed}, threads={self._threads}, attest_every={self._attest_every}"

    def loader(self, dataset: torch.utils.data.Dataset, batch_size: int, *, shuffle: bool = False,
               drop_last: bool = False, **options) -> Loader:
        """A ``DataLoader`` that yields, for each step, a list of this rank's shards of the global batch, each collated.
        All ranks call this, with the same arguments, and so does a program for one rank: ``batch_size`` is that of all
        ranks together. Takes the other options of ``DataLoader``, such as ``num_workers`` and ``collate_fn``.

        What a step has depends on the seed, the epoch and the step. The last batch of an epoch may be smaller, unless
        ``drop_last`` leaves it out; a shard that gets no sample of it is ``None``, and all ranks still have as many
        steps. ``set_epoch`` says where the next iteration begins, as after a checkpoint::

            loader.set_epoch(*divmod(int(net.steps), len(loader)))
            for epoch in range(loader.epoch, epochs):
                for shards in loader:
                    ...

        For samples in memory, shards of row numbers do: ``net.loader(range(len(labels)), batch_size=64)``."""
        if batch_size < 1:
            raise InvalidArgument(f"batch_size={batch_size}: expected 1 or more")
        self._agree(f"DataParallel.loader: {len(dataset)} samples in batches of {batch_size}"
                    f"{', shuffled' if shuffle else ''}{', without the rest' if drop_last else ''}")
        sampler = ShardSampler(len(dataset), batch_size, drop_last, self._seed, shuffle, self.shards,
                               self._own)
        return Loader(dataset, sampler, **options)

    def forward(self, *inputs, **options):
        """That of the module, in the ``loss_of`` of :meth:`backward`. Elsewhere, as in an evaluation, without
        gradients: ``with torch.no_grad()``, or after ``eval()``."""
        if self.training and torch.is_grad_enabled() and not self._computes:
            raise InvalidArgument("a forward pass in training that DataParallel.backward does not make: expected "
                                  "net.backward(shards, loss_of), whose loss_of calls net, or torch.no_grad()")
        return self.module(*inputs, **options)

    def backward(self, shards: typing.Iterable,
                 loss_of: typing.Callable[[typing.Any], tuple[torch.Tensor, float]]) -> float:
        """A step's gradients. Calls ``loss_of(shard)`` for each of this rank's ``shards``, those of a step of a
        :meth:`loader`; it returns the mean loss of the shard's samples and their number, or what it was divided by in
        its place, such as the number of tokens. Returns the mean loss over the samples of all ranks, the same on each.

        ``.grad`` of each parameter gets the mean gradient over these samples, added to what it held, as in
        ``loss.backward()``. A parameter that no shard has used keeps its ``.grad``. ``loss_of`` is not called for a
        shard that is ``None``, and must train this module alone.

        All ranks call this. ``MismatchError`` if they do not make the same step of the same parameters, and if a
        buffer was changed between steps on some ranks alone, as by a forward pass in training. If ``loss_of`` raises,
        gradients and buffers are what they were before."""
        shards = list(shards)
        if len(shards) != len(self._own):
            raise InvalidArgument(f"DataParallel.backward of {len(shards)} shards: expected one for each of this rank's "
                                  f"{len(self._own)}, or None")
        if torch.get_num_threads() != self._threads:
            raise InvalidArgument(f"torch.set_num_threads({torch.get_num_threads()}) after DataParallel(threads="
                                  f"{self._threads}): expected the same number, on which bits depend")
        step = int(self.steps)
        if self._attest_every and step % self._attest_every == 0:
            check_replicas(self.module, self._group)
        parameters, buffers = _trained(self.module), _Buffers(self.module)
        call = (f"DataParallel.backward: step {step}{buffers.text_of_changes(self._left)}, in {self.shards} shards, of "
                f"{_text_of(self.module)}")
        computed = self._compute(step, shards, loss_of, parameters, buffers)
        loss = self._add_up(call, computed, parameters, buffers)
        self._left = list(buffers)
        self.steps += 1
        return loss

    def _agree(self, call):
        self._backend.agree(call).wait()

    def _sum(self, call, tensors):
        self._backend.sum_over_shards(call, tensors, self.shards).wait()

    def _compute(self, step, shards, loss_of, parameters, buffers):
        """This rank's shards, one after the other."""
        earlier = [each.grad for each in parameters]
        computed = _Computed(parameters)
        self._computes = True
        try:
            for number, shard in zip(self._own, shards):
                for each in parameters:
                    each.grad = None
                loss, samples = 0.0, 0.0
                if shard is not None:
                    with seeded(f"{self._seed} {step} {number}"):
                        loss, samples = _backward(loss_of(shard))
                changed = buffers.changed()
                computed.add(loss, samples, parameters, changed)
                buffers.restore(changed)
        except BaseException:
            buffers.restore(buffers.changed())
            raise
        finally:
            self._computes = False
            for each, gradient in zip(parameters, earlier):
                each.grad = gradient
        return computed

    @torch.no_grad()
    def _add_up(self, call, computed, parameters, buffers):
        """Over all ranks. Gradients and buffers become those of the step. Returns the mean loss."""
        counts = computed.counts(buffers, self._rank, self._ranks)
        self._sum(call, [counts])  # by itself: where a rank is elsewhere, no further request is left over
        has, changed, of_ranks = (each.tolist() for each in counts.split([len(parameters), len(buffers), self._ranks]))
        if not any(of_ranks):
            return 0.0
        changed = [index for index, ranks in enumerate(changed) if ranks]
        reals = [index for index in changed if buffers[index].is_floating_point()]
        others = [index for index in changed if index not in reals]
        sums = computed.tree.sum()
        tensors = [*sums, computed.weighed(reals, buffers), computed.of_first(others, buffers)]
        if not of_ranks[self._rank] or any(of_ranks[:self._rank]):
            tensors[-1].zero_()  # another rank has the first shard with samples
        self._sum(call, [each for each in tensors if each.numel()])

        (loss, samples), *rest = sums[0].split([2, sums[0].numel() - 2])
        for each in (*rest, *sums[1:], tensors[-2]):
            each /= samples
        _add_gradients(parameters, has, dict(zip((torch.float64, torch.float32), (*rest, *sums[1:]))))
        buffers.write(reals, tensors[-2])
        buffers.write(others, tensors[-1])
        return (loss / samples).item()


class _Tree:
    """Adds up the tensors of adjacent shards, in place: tree(0, n) = tree(0, m) + tree(m, n), where m is the largest
    power of two below n."""

    def __init__(self):
        self._parts = []  # each of twice as many shards as the next, or more

    def push(self, tensors):
        shards = 1
        while self._parts and self._parts[-1][0] == shards:
            tensors = self._add_last(tensors)
            shards *= 2
        self._parts.append((shards, tensors))

    def sum(self):
        _, tensors = self._parts.pop()
        while self._parts:
            tensors = self._add_last(tensors)
        return tensors

    def _add_last(self, tensors):
        _, before = self._parts.pop()
        for sum, each in zip(before, tensors):
            sum += each
        return before


class _Computed:
    """What a rank's shards have computed."""

    def __init__(self, parameters):
        self.tree = _Tree()  # of the loss, the samples and the float64 gradients, and of the float32 gradients
        self._has = [False] * len(parameters)  # whether a shard had a gradient
        self._of_shards = []  # samples, and the buffers that it changed

    def add(self, loss, samples, parameters, changed):
        gradients = {torch.float64: [torch.tensor([loss * samples, samples], dtype=torch.float64)], torch.float32: []}
        for index, each in enumerate(parameters):
            gradient = each.grad
            if gradient is not None and gradient.layout != torch.strided:
                raise InvalidArgument("a sparse gradient in DataParallel.backward: expected Embedding(sparse=False)")
            self._has[index] |= gradient is not None
            gradients[each.dtype].append((torch.zeros_like(each) if gradient is None else gradient).flatten())
        self.tree.push([torch.cat(each).detach() for each in gradients.values() if each])
        self._of_shards.append((samples, changed))

    def counts(self, buffers, rank, ranks):
        """What becomes, added up, the number of ranks with a gradient of each parameter, those that changed each
        buffer, and whether each rank has samples."""
        changed = {index for _, values in self._of_shards for index in values}
        has_samples = any(samples > 0 for samples, _ in self._of_shards)
        return torch.tensor([*self._has, *(index in changed for index in range(len(buffers))),
                             *(has_samples and each == rank for each in range(ranks))], dtype=torch.int64)

    def weighed(self, indices, buffers):
        """The sum over the shards of these buffers times samples."""
        tree = _Tree()
        for samples, values in self._of_shards:
            each = _flat(indices, values, buffers, torch.float64)
            tree.push([each * samples if samples > 0 else torch.zeros_like(each)])
        return tree.sum()[0]

    def of_first(self, indices, buffers):
        """These buffers after the first shard with samples."""
        first = next((values for samples, values in self._of_shards if samples > 0), {})
        return _flat(indices, first, buffers, torch.int64)


def _flat(indices, values, buffers, dtype):
    """Buffers of a shard one after the other, of which `values` has those that it changed."""
    parts = [values.get(index, buffers[index]).flatten().to(dtype) for index in indices]
    return torch.cat(parts) if parts else torch.empty(0, dtype=dtype)


def _add_gradients(parameters, has, means):
    """To those of the parameters; `means` are by type, one after the other."""
    for ranks, each in zip(has, parameters):
        mean, means[each.dtype] = means[each.dtype].tensor_split([each.numel()])
        if ranks and each.grad is None:
            each.grad = mean.view_as(each)
        elif ranks:
            each.grad += mean.view_as(each)


class _Buffers:
    """A module's buffers at the beginning of a step, which begins each of its shards."""

    def __init__(self, module):
        self._places = [(f"{name}.{key}".lstrip("."), owner, key) for name, owner in module.named_modules()
                        for key, tensor in owner._buffers.items() if tensor is not None]
        self._tensors = [owner._buffers[key] for _, owner, key in self._places]
        self._values = [each.clone() for each in self._tensors]

    def __len__(self):
        return len(self._values)

    def __getitem__(self, index):
        return self._values[index]

    def changed(self):
        """By index, copies of those that were changed since. Their contents say so: batch norm does not count versions."""
        now = [owner._buffers[key] for _, owner, key in self._places]
        return {index: each.detach().clone() for index, each in enumerate(now) if not _is_same(each, self[index])}

    @torch.no_grad()
    def restore(self, changed):
        for index in changed:
            _, owner, key = self._places[index]
            owner._buffers[key] = self._tensors[index].copy_(self[index])

    def write(self, indices, values):
        """The values of several, one after the other."""
        for index, value in zip(indices, values.split([self[index].numel() for index in indices])):
            self._values[index] = value.to(self[index].dtype).view_as(self[index])
            self._tensors[index].copy_(self[index])

    def text_of_changes(self, left):
        """Of those that are not what a step has left."""
        changed = [index for index, value in enumerate(self._values)
                   if index >= len(left) or not _is_same(value, left[index])]
        if not changed:
            return ""
        digest = _short("".join(digest_of(self[index]) for index in changed))
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f" after a change of buffer {self._places[changed[0]][0]!r}{others} ({digest})"


def _is_same(tensor, other):
    """Bit by bit."""
    if tensor.dtype != other.dtype or tensor.shape != other.shape:
        return False
    return torch.equal(*(each.detach().reshape(-1).view(torch.uint8) for each in (tensor, other)))


def _backward(result):
    """The backward pass of a shard's sum. Returns its mean loss and its samples."""
    loss, samples = result if isinstance(result, tuple) and len(result) == 2 else (None, None)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise InvalidArgument("loss_of of DataParallel.backward: expected it to return the mean loss of the shard, one "
                              "number, and its number of samples")
    samples = float(samples)
    if not (samples >= 0 and math.isfinite(samples)):
        raise InvalidArgument(f"{samples} samples of a shard in DataParallel.backward: expected 0 or more")
    if samples == 0:
        return 0.0, 0.0
    if loss.dtype != torch.float64:
        loss = loss.float()
    loss.backward(torch.full_like(loss, samples))
    return loss.item(), samples


def _backend_of(group):
    group = group or torch.distributed.distributed_c10d._get_default_group()
    if torch.device("cpu") in group._device_types:
        backend = group._get_backend(torch.device("cpu"))
        if isinstance(backend, core.Backend):
            return backend
    raise InvalidArgument("DataParallel in a process group without lockstep on the CPU: expected "
                          'init_process_group("lockstep")')


def _trained(module):
    """The parameters that are not frozen."""
    named = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
    for name, each in named:
        if each.device.type != "cpu" or each.dtype not in (torch.float32, torch.float64):
            raise InvalidArgument(f"DataParallel of a module whose parameter {name!r} is {each.dtype} on {each.device}: "
                                  "expected float32 or float64 on the CPU")
    return [each for _, each in named]


def _require_layers(module):
    for name, each in module.named_buffers():
        if each.is_complex():
            raise InvalidArgument(f"DataParallel of a module whose buffer {name!r} is {each.dtype}: expected real numbers")
    for name, each in module.named_modules():
        what = f"DataParallel of a module with {type(each).__name__} {name!r}"
        if isinstance(each, torch.nn.SyncBatchNorm):
            raise InvalidArgument(f"{what}: expected a BatchNorm, which normalizes each shard by itself")
        if isinstance(each, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and each.max_norm is not None:
            raise InvalidArgument(f"{what}, whose max_norm lets a forward pass change weights: expected none")


def _text_of(module):
    """What ranks compare of a module."""
    named = [*module.named_parameters(), *module.named_buffers()]
    parts = [f"{name} {each.dtype} {tuple(each.shape)} {each.requires_grad}" for name, each in named]
    elements = sum(each.numel() for each in module.parameters() if each.requires_grad)
    return f"{type(module).__name__} with {elements} trained parameters in {len(named)} tensors ({_short(repr(parts))})"


def _short(text):
    return digest_of(torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8))[:8]
