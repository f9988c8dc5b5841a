"""Every collective against what a rank computes by hand from the inputs of all: collectives.py BACKEND, started by MPI's
launcher, on any number of ranks. Prints "done" on rank 0."""

import random
import sys
import threading
import time

import torch
import torch.distributed as dist

import lockstep.torch

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
ALL = [*FLOATS, *COMPLEX, *INTEGERS, torch.bool]
OTHERS = [torch.float8_e4m3fn, torch.uint16, torch.uint32]  # that only move
Op = dist.ReduceOp
OPS = [Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX, Op.BAND, Op.BOR, Op.BXOR]
BACKEND = sys.argv[1]
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
if BACKEND.endswith("gloo"):  # what gloo has
    ALL = [torch.float32, torch.float64, torch.float16, torch.uint8, torch.int8, torch.int32, torch.int64]
    OTHERS = [torch.bool]
    OPS.remove(Op.AVG)
has_reduce_scatter = BACKEND == "lockstep" or TORCH >= (2, 15)  # older gloo has none

dist.init_process_group(BACKEND)
rank, size = dist.get_rank(), dist.get_world_size()
draw = random.Random(20)  # the same on all ranks


def shape():
    return [draw.choice([0, 1, 2, 3, 5, 70]) for _ in range(draw.randrange(0 if BACKEND == "lockstep" else 1, 4))]


def blocks(of_ranks):
    return torch.stack(of_ranks) if BACKEND == "lockstep" else torch.cat(of_ranks)  # all that gloo takes


def seed():
    return draw.randrange(1 << 30)


def value(of_rank, sizes, dtype, number):
    """Small numbers, whose sums and products are exact."""
    generator = torch.Generator().manual_seed(number * 100 + of_rank)
    return torch.randint(0, 3, sizes, generator=generator).to(dtype)


def values(sizes, dtype):
    number = seed()
    return [value(each, sizes, dtype, number) for each in range(size)]


def reducible(op, dtype):
    if op == Op.AVG:
        return dtype in FLOATS + COMPLEX
    if op in (Op.MIN, Op.MAX):
        return dtype not in COMPLEX
    if op == Op.PRODUCT:
        return dtype not in COMPLEX  # torch.distributed refuses it
    return op == Op.SUM or dtype in INTEGERS + [torch.bool]


def combined(op, of_ranks):
    stacked = torch.stack(of_ranks)
    if stacked.dtype == torch.bool:
        if op == Op.BXOR:
            return (stacked.sum(0) % 2).bool()
        return stacked.all(0) if op in (Op.PRODUCT, Op.MIN, Op.BAND) else stacked.any(0)
    if op in (Op.SUM, Op.AVG):
        total = stacked.sum(0).to(stacked.dtype)
        return total / size if op == Op.AVG else total
    pairwise = {
        Op.PRODUCT: torch.mul, Op.MIN: torch.minimum, Op.MAX: torch.maximum,
        Op.BAND: torch.bitwise_and, Op.BOR: torch.bitwise_or, Op.BXOR: torch.bitwise_xor,
    }[op]
    result = of_ranks[0]
    for each in of_ranks[1:]:
        result = pairwise(result, each)
    return result


def strange(tensor):
    """The same elements in memory that is not contiguous, now and then."""
    if tensor.dim() < 2 or draw.random() < 0.5 or BACKEND != "lockstep":  # gloo takes such memory for contiguous
        return tensor.clone()
    return tensor.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)


def expect(got, expected, what):
    assert got.dtype == expected.dtype and got.shape == expected.shape, what
    if got.dtype == torch.float8_e4m3fn:
        got, expected = got.view(torch.uint8), expected.view(torch.uint8)
    assert torch.equal(got, expected), (what, got, expected)


def check_reductions(dtype):
    for op in OPS:
        if not reducible(op, dtype):
            continue
        sizes, root = shape(), draw.randrange(size)
        of_ranks = values(sizes, dtype)
        expected = combined(op, of_ranks)
        mine = strange(of_ranks[rank])
        dist.all_reduce(mine, op)
        expect(mine, expected, ("all_reduce", op, dtype, sizes))

        mine = strange(of_ranks[rank])
        dist.reduce(mine, root, op)
        if rank == root or BACKEND == "lockstep":  # others leave something in it
            expect(mine, expected if rank == root else of_ranks[rank], ("reduce", op, dtype, sizes))

        if not has_reduce_scatter:
            continue
        parts = [values(sizes, dtype) for _ in range(size)]  # parts[to][from]
        got = strange(torch.empty(sizes, dtype=dtype))
        dist.reduce_scatter(got, [strange(part[rank]) for part in parts], op)
        expect(got, combined(op, parts[rank]), ("reduce_scatter", op, dtype, sizes))
        got = torch.empty(sizes, dtype=dtype)
        dist.reduce_scatter_tensor(got, blocks([part[rank] for part in parts]), op)
        expect(got, combined(op, parts[rank]), ("reduce_scatter_tensor", op, dtype, sizes))


def check_sparse(dtype):
    """Of ranks with other numbers of elements, also twice at one index, and with none. torch.distributed adds up a copy
    of those that are complex."""
    if dtype not in [torch.float32, torch.float64] and BACKEND != "lockstep":
        return
    for dimensions in (1, 2):
        sizes = [4, 3, 2]
        number = seed()

        def of_rank(each):
            generator = torch.Generator().manual_seed(number + each)
            count = 3 * each % 7
            indices = torch.stack([torch.randint(0, extent, (count,), generator=generator) for extent in sizes[:dimensions]])
            return torch.sparse_coo_tensor(indices, value(each, [count, *sizes[dimensions:]], dtype, number), sizes)

        dense = [of_rank(each).to_dense() for each in range(size)]
        for op in (Op.SUM, Op.AVG) if BACKEND == "lockstep" and dtype in FLOATS else (Op.SUM,):
            mine = of_rank(rank)
            dist.all_reduce(mine, op)
            assert mine.is_coalesced() or BACKEND != "lockstep"
            expect(mine.to_dense(), combined(op, dense), ("sparse all_reduce", op, dtype, dimensions))


def check_moves(dtype):
    sizes, root = shape(), draw.randrange(size)
    of_ranks = values(sizes, dtype)
    mine = strange(of_ranks[rank])
    dist.broadcast(mine, root)
    expect(mine, of_ranks[root], ("broadcast", dtype, sizes))

    got = [strange(torch.empty(sizes, dtype=dtype)) for _ in range(size)]
    dist.all_gather(got, strange(of_ranks[rank]))
    for each, expected in zip(got, of_ranks):
        expect(each, expected, ("all_gather", dtype, sizes))
    got = torch.empty_like(blocks(of_ranks))
    dist.all_gather_into_tensor(got, strange(of_ranks[rank]))
    expect(got, blocks(of_ranks), ("all_gather_into_tensor", dtype, sizes))

    got = [torch.empty(sizes, dtype=dtype) for _ in range(size)] if rank == root else None
    dist.gather(of_ranks[rank].clone(), got, root)
    for each, expected in zip(got or [], of_ranks):
        expect(each, expected, ("gather", dtype, sizes))
    got = torch.empty(sizes, dtype=dtype)
    dist.scatter(got, [each.clone() for each in of_ranks] if rank == root else None, root)
    expect(got, of_ranks[rank], ("scatter", dtype, sizes))

    parts = [values(sizes, dtype) for _ in range(size)]  # parts[to][from]
    got = torch.empty_like(blocks(parts[rank]))
    dist.all_to_all_single(got, blocks([part[rank] for part in parts]))
    expect(got, blocks(parts[rank]), ("all_to_all_single", dtype, sizes))

    # Of any length: lengths[from][to].
    lengths = [[draw.randrange(5) for _ in range(size)] for _ in range(size)]
    number = seed()

    def part(of_rank, to):
        return value(of_rank * size + to, [lengths[of_rank][to], 2], dtype, number)

    incoming = [lengths[each][rank] for each in range(size)]
    got = torch.empty([sum(incoming), 2], dtype=dtype)
    dist.all_to_all_single(got, torch.cat([part(rank, to) for to in range(size)]), incoming, lengths[rank])
    expect(got, torch.cat([part(each, rank) for each in range(size)]), ("all_to_all_single of parts", dtype, lengths))
    if BACKEND != "lockstep":  # gloo has no lists of different lengths
        return
    got = [torch.empty([length, 2], dtype=dtype) for length in incoming]
    dist.all_to_all(got, [part(rank, to) for to in range(size)])
    for each, expected in enumerate(got):
        expect(expected, part(each, rank), ("all_to_all", dtype, lengths))


def check_messages():
    if size == 1:
        return
    following, before = (rank + 1) % size, (rank - 1) % size
    for elements in (1, 1000, 3_000_000):
        mine, got = torch.arange(elements) + rank, torch.zeros(elements, dtype=torch.int64)
        if rank == 0:
            dist.send(mine, following)
        assert dist.recv(got, before) == before
        if rank != 0:
            dist.send(mine, following)
        assert torch.equal(got, torch.arange(elements) + before)
    # All at once, in a ring, with tags in another order than they are asked for.
    got = torch.zeros(2)
    requests = [dist.isend(torch.full((2,), float(tag)), following, tag=tag) for tag in (1, 2)]
    for tag in (2, 1):
        dist.recv(got, before, tag=tag)
        assert got[0] == tag
    for request in requests:
        request.wait()
    got = torch.zeros(3)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((3,), float(rank)), following),
                                        dist.P2POp(dist.irecv, got, before)]):
        work.wait()
    assert torch.equal(got, torch.full((3,), float(before)))
    # From any rank.
    if rank == 0:
        got, sources = torch.zeros(1), []
        for _ in range(size - 1):
            sources.append(dist.recv(got))
            assert got.item() == sources[-1]
        assert sorted(sources) == list(range(1, size))
    else:
        dist.send(torch.full((1,), float(rank)), 0)
    dist.barrier()


def check_coalesced():
    tensors = [torch.full((each + 1,), float(rank)) for each in range(3)]
    with dist._coalescing_manager():
        for each in tensors:
            dist.all_reduce(each)
    assert all(torch.equal(each, torch.full_like(each, size * (size - 1) / 2)) for each in tensors)
    tensors = [torch.full((2,), float(rank)), torch.full((3,), 1.0)]
    dist.all_reduce_coalesced(tensors)
    assert tensors[0][0] == size * (size - 1) / 2 and tensors[1][0] == size


def check_groups():
    if size < 3:
        return
    pair, turned = dist.new_group([0, 2]), dist.new_group([size - 1, 1], sort_ranks=False) \
        if "sort_ranks" in dist.new_group.__code__.co_varnames else dist.new_group([1, size - 1])
    first = torch.ones(4)
    if rank in (0, 2):
        dist.all_reduce(first, group=pair)
        assert first[0] == 2
        dist.broadcast(first.fill_(rank), 2, group=pair)
        assert first[0] == 2
    second = torch.ones(4)
    if rank in (1, size - 1):
        dist.all_reduce(second, group=turned)
        assert second[0] == 2
    dist.barrier()


def check_asynchronous():
    tensors = [torch.full((50_000,), float(rank + each)) for each in range(6)]
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    seen = []
    futures = [work.get_future().then(lambda future: seen.append(future.value()[0][0].item())) for work in works]
    for work in reversed(works):
        work.wait()
        assert work.is_completed()
    for future in futures:
        future.wait()
    assert sorted(seen) == [sum(other + each for other in range(size)) for each in range(6)]
    # A callback that waits for another call, as that of PowerSGD.
    chained = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(
        lambda future: dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0])
    assert chained.wait()[0] == size * size


def check_callbacks_that_wait():
    """Each for the next call, whose callback runs at the same time."""
    tensors = [torch.full((3,), float(rank + each)) for each in range(8)]
    futures = [dist.all_reduce(each, async_op=True).get_future() for each in tensors]
    sums = [first.then(lambda future, second=second: future.value()[0] + second.wait()[0])
            for first, second in zip(futures, futures[1:])]
    for each, both in reversed(list(enumerate(sums))):
        assert both.wait().tolist() == [size * (size + 2 * each)] * 3


def check_callbacks_that_raise():
    """The error keeps its type, and the group goes on."""
    chained = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda future: {}["no such key"])
    after = torch.ones(2)
    dist.all_reduce(after)
    assert after[0] == size
    for _ in range(2):
        try:
            chained.wait()
        except KeyError as error:
            assert "no such key" in str(error)
        else:
            raise AssertionError("nothing was raised")


def check_callbacks_of_messages():
    """They hold no collective back: this one comes before the message."""
    if size == 1:
        return
    total = torch.ones(2)
    if rank == 0:
        seen = dist.irecv(torch.zeros(2), size - 1).get_future().then(lambda future: future.value()[0][0].item())
    dist.all_reduce(total)
    assert total[0] == size
    if rank == 0:
        assert seen.wait() == 5
    elif rank == size - 1:
        dist.send(torch.full((2,), 5.0), 0)


def check_calls_of_callbacks():
    """They come where the program has added the callback, also where it runs long after."""
    other, holds = dist.new_group(list(range(size))), BACKEND == "lockstep"  # others wait for a call at its callback
    if rank == 0 and holds:
        dist.barrier(group=other)
    first = dist.all_reduce(torch.full((3,), 1.0), async_op=True).get_future().then(
        lambda future: dist.all_reduce(10 * future.value()[0], async_op=True).get_future().then(
            lambda future: dist.all_reduce(100 * future.value()[0], async_op=True).get_future().wait()[0]).wait())
    if rank == 0:
        assert first.wait().tolist() == [1000 * size**3] * 3
    second = torch.full((3,), 2.0)
    work = dist.all_reduce(second, async_op=True)
    if rank > 0 and holds:
        dist.barrier(group=other)
    work.wait()
    assert second.tolist() == [2 * size] * 3, second
    assert first.wait().tolist() == [1000 * size**3] * 3


def check_progress():
    """A call returns while the others have not come, and ends while nobody waits; groups do not wait for each other."""
    other = dist.new_group(list(range(size)))
    large = torch.ones(5_000_000)
    if rank > 0:
        dist.barrier(group=other)
    begun = time.monotonic()
    work = dist.all_reduce(large, async_op=True)
    took = time.monotonic() - begun
    if rank == 0:
        assert took < 0.1, took
        dist.barrier(group=other)
    done = threading.Event()
    work.get_future().add_done_callback(lambda _: done.set())
    assert done.wait(30) and large[0] == size


def check_threads():
    groups = [dist.new_group(list(range(size))) for _ in range(2)]
    totals = {}

    def sum_up(which):
        totals[which] = 0
        for each in range(20):
            mine = torch.full((1000,), float(rank + each))
            dist.all_reduce(mine, group=groups[which])
            totals[which] += mine[0].item()

    threads = [threading.Thread(target=sum_up, args=(which,)) for which in ((0, 1) if rank % 2 else (1, 0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = sum(other + each for each in range(20) for other in range(size))
    assert totals == {0: expected, 1: expected}


def check_objects():
    everybody = [None] * size
    dist.all_gather_object(everybody, {"rank": rank, "text": "x" * rank})
    assert [each["rank"] for each in everybody] == list(range(size))
    told = [["a", 1], None] if rank == 0 else [None, None]
    dist.broadcast_object_list(told)
    assert told == [["a", 1], None]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {each}" for each in range(size)] if rank == 0 else None)
    assert mine == [f"for {rank}"]
    if TORCH >= (2, 14):  # before, torch.distributed asks no backend but gloo
        dist.monitored_barrier()


def check_functional():
    import torch.distributed._functional_collectives as functional

    total = functional.all_reduce(torch.full((3,), float(rank)), "sum", dist.group.WORLD)
    assert total[0] == size * (size - 1) / 2
    gathered = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, dist.group.WORLD)
    assert gathered.tolist() == [each for each in range(size) for _ in range(2)]
    if not has_reduce_scatter:
        return
    scattered = functional.reduce_scatter_tensor(torch.ones(2 * size), "sum", 0, dist.group.WORLD)
    assert scattered.tolist() == [size] * 2


def check_store():
    store = dist.distributed_c10d._get_default_store()
    store.set(f"key {rank}", str(rank))
    assert [store.get(f"key {each}") for each in range(size)] == [str(each).encode() for each in range(size)]
    store.add("sum", rank)
    dist.barrier()
    assert store.add("sum", 0) == size * (size - 1) // 2
    assert store.check(["sum"]) and not store.check(["no such key"])


for dtype in ALL:
    check_reductions(dtype)
for dtype in ALL + OTHERS:
    check_moves(dtype)
for dtype in FLOATS + [torch.int32, torch.int64, torch.uint8]:
    check_sparse(dtype)
check_messages()
check_coalesced()
check_groups()
check_asynchronous()
check_callbacks_that_wait()
check_callbacks_that_raise()
check_callbacks_of_messages()
check_calls_of_callbacks()
check_progress()
check_threads()
check_objects()
check_functional()
check_store()
dist.barrier()
if rank == 0:
    print("done")
dist.destroy_process_group()
