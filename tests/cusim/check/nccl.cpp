// What cusim's NCCL computes, and when.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "nccl_ranks.hpp"

using namespace cusim::check;

namespace {

/// 0.1 (rank + 1) and the like, whose sums depend on their order.
std::vector<float> uneven(int rank, std::size_t count) {
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers[i] = static_cast<float>(rank + 1) * 0.1f +
                 static_cast<float>(i * 7919 % 1000) * 1e3f * static_cast<float>(rank % 2 ? 1 : -1);
  return numbers;
}

/// `numbers` are 1, 2, 3, 8 and 12 in the type. The ranks have 1, 2, 3 and 2, whose quarters are exact.
template <class T>
void check_type(Rank& me, ncclDataType_t type, const std::vector<T>& numbers) {
  const struct {
    ncclRedOp_t op;
    std::size_t expected;  ///< an index
  } cases[] = {{ncclSum, 3}, {ncclProd, 4}, {ncclMax, 2}, {ncclMin, 0}, {ncclAvg, 1}};
  const std::vector<T> mine(5, numbers[me.rank == 3 ? 1 : static_cast<std::size_t>(me.rank)]);
  T* const from = me.on_gpu(mine);
  T* const to = me.on_gpu(mine);
  for (const auto& [op, expected] : cases) {
    me.call(ncclAllReduce(from, to, mine.size(), type, op, me.comm, me.stream));
    me.wait();
    me.require(me.on_host(to, mine.size()) == std::vector<T>(mine.size(), numbers[expected]),
               "type " + std::to_string(type) + ", operation " + std::to_string(op));
  }
}

}  // namespace

TEST_CASE("numbers of all types are reduced by all operations") {
  const auto ends = run_ranks(4, {}, [](Rank& me) {
    me.start();
    check_type<std::int8_t>(me, ncclInt8, {1, 2, 3, 8, 12});
    check_type<std::uint8_t>(me, ncclUint8, {1, 2, 3, 8, 12});
    check_type<std::int32_t>(me, ncclInt32, {1, 2, 3, 8, 12});
    check_type<std::uint32_t>(me, ncclUint32, {1, 2, 3, 8, 12});
    check_type<std::int64_t>(me, ncclInt64, {1, 2, 3, 8, 12});
    check_type<std::uint64_t>(me, ncclUint64, {1, 2, 3, 8, 12});
    check_type<std::uint16_t>(me, ncclFloat16, {0x3c00, 0x4000, 0x4200, 0x4800, 0x4a00});
    check_type<std::uint16_t>(me, ncclBfloat16, {0x3f80, 0x4000, 0x4040, 0x4100, 0x4140});
    check_type<float>(me, ncclFloat32, {1, 2, 3, 8, 12});
    check_type<double>(me, ncclFloat64, {1, 2, 3, 8, 12});
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("broadcasts and reductions go from and to each root, gathers and scatters by rank") {
  const auto ends = run_ranks(4, {}, [](Rank& me) {
    me.start();
    const auto ranks = static_cast<std::size_t>(me.size);
    for (int root = 0; root < me.size; ++root) {
      int* const data = me.on_gpu(std::vector<int>(100, me.rank + 10));
      me.call(ncclBroadcast(data, data, 100, ncclInt32, root, me.comm, me.stream));
      int* const sum = me.on_gpu(std::vector<int>(3, me.rank));
      me.call(ncclReduce(sum, sum, 3, ncclInt32, ncclSum, root, me.comm, me.stream));
      me.wait();
      me.require(me.on_host(data, 100) == std::vector<int>(100, root + 10), "a broadcast");
      me.require(me.on_host(sum, 3) == std::vector<int>(3, me.rank == root ? 6 : me.rank), "a reduction");
    }
    int* const mine = me.on_gpu(std::vector<int>(2, me.rank));
    int* const all = me.on_gpu(std::vector<int>(2 * ranks, -1));
    me.call(ncclAllGather(mine, all, 2, ncclInt32, me.comm, me.stream));
    int* const part = me.on_gpu(std::vector<int>(2, -1));
    me.call(ncclReduceScatter(all, part, 2, ncclInt32, ncclSum, me.comm, me.stream));
    me.wait();
    me.require(me.on_host(all, 8) == std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}, "a gather");
    me.require(me.on_host(part, 2) == std::vector<int>(2, me.rank * me.size), "a scatter");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("sends and receives in a group go crosswise") {
  const auto ends = run_ranks(3, {}, [](Rank& me) {
    me.start();
    constexpr std::size_t count = 300'000;
    int* const mine = me.on_gpu(std::vector<int>(count, me.rank));
    std::vector<int*> rooms;
    me.require(ncclGroupStart(), "ncclGroupStart");
    for (int peer = 0; peer < me.size; ++peer) {
      rooms.push_back(me.on_gpu(std::vector<int>(count, -1)));
      me.require(ncclSend(mine, count, ncclInt32, peer, me.comm, me.stream), "ncclSend");
      me.require(ncclRecv(rooms.back(), count, ncclInt32, peer, me.comm, me.stream), "ncclRecv");
    }
    me.call(ncclGroupEnd());
    me.wait();
    for (int peer = 0; peer < me.size; ++peer)
      me.require(me.on_host(rooms[static_cast<std::size_t>(peer)], count) == std::vector<int>(count, peer),
                 "a receive");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("a group on two streams comes after both, and both go on after it") {
  const auto ends = run_ranks(2, {}, [](Rank& me) {
    me.start();
    cudaStream_t other = nullptr;
    me.require(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    int* const one = me.on_gpu(std::vector<int>(4, 7));
    int* const two = me.on_gpu(std::vector<int>(4, 7));
    int* const copy = me.on_gpu(std::vector<int>(4, 7));
    me.require(cudaMemsetAsync(one, me.rank, 16, me.stream), "cudaMemsetAsync");
    me.require(cudaMemsetAsync(two, me.rank, 16, other), "cudaMemsetAsync");
    me.require(ncclGroupStart(), "ncclGroupStart");
    me.call(ncclAllReduce(one, one, 4, ncclInt32, ncclSum, me.comm, me.stream));
    me.call(ncclAllReduce(two, two, 4, ncclInt32, ncclSum, me.comm, other));
    me.call(ncclGroupEnd());
    me.require(cudaMemcpyAsync(copy, one, 16, cudaMemcpyDeviceToDevice, other), "cudaMemcpyAsync");
    me.require(cudaStreamSynchronize(other), "cudaStreamSynchronize");
    me.require(me.on_host(copy, 4) == std::vector<int>(4, 0x01010101), "the sum of the first");
    me.require(me.on_host(two, 4) == std::vector<int>(4, 0x01010101), "the sum of the second");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("a communicator runs its operations in the order of the calls, whatever their streams") {
  for (int seed = 1; seed <= 5; ++seed) {
    const auto ends = run_ranks(2, {{"CUSIM_SEED", std::to_string(seed)}}, [](Rank& me) {
      me.start();
      cudaStream_t other = nullptr;
      me.require(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      int* const one = me.on_gpu(std::vector<int>(4, 1));
      int* const two = me.on_gpu(std::vector<int>(8, 1));
      me.call(ncclAllReduce(one, one, 4, ncclInt32, ncclSum, me.comm, me.stream));
      me.call(ncclAllReduce(two, two, 8, ncclInt32, ncclSum, me.comm, other));
      me.require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      me.require(me.on_host(one, 4) == std::vector<int>(4, 2), "the first sum");
      me.require(me.on_host(two, 8) == std::vector<int>(8, 2), "the second sum");
      me.finish();
    });
    REQUIRE(complaints(ends) == "");
  }
}

TEST_CASE("an operation that a graph holds runs with each launch") {
  const auto ends = run_ranks(2, {}, [](Rank& me) {
    me.start(0);
    int* const data = me.on_gpu(std::vector<int>(4, 1));
    me.require(cudaStreamBeginCapture(me.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    me.call(ncclAllReduce(data, data, 4, ncclInt32, ncclSum, me.comm, me.stream));
    cudaGraph_t graph = nullptr;
    me.require(cudaStreamEndCapture(me.stream, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t launchable = nullptr;
    me.require(cudaGraphInstantiate(&launchable, graph, 0), "cudaGraphInstantiate");
    for (int turn = 0; turn < 3; ++turn) me.require(cudaGraphLaunch(launchable, me.stream), "cudaGraphLaunch");
    me.wait();
    me.require(me.on_host(data, 4) == std::vector<int>(4, 8), "three sums");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("an operation runs on its stream, and only when all ranks have called it") {
  const auto ends = run_ranks(2, {}, [](Rank& me) {
    me.start();
    int* const data = me.on_gpu(std::vector<int>(4, 1));
    if (me.rank == 1) {
      me.meet(0);
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
    me.require(cudaMemsetAsync(data, 0, 16, me.stream), "cudaMemsetAsync");
    me.call(ncclAllReduce(data, data, 4, ncclInt32, ncclSum, me.comm, me.stream));
    if (me.rank == 0) {
      me.require(!me.is_done_within(0.05), "it is not done before the other rank calls");
      me.meet(0);
    }
    me.wait();
    me.require(me.on_host(data, 4) == std::vector<int>(4, 0), "what came before on the stream came before");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("calls that are in progress at times have the same results", "[seeds]") {
  std::set<std::string> seen;
  for (int seed = 1; seed <= 50; ++seed) {
    const auto ends = run_ranks(2, {{"CUSIM_SEED", std::to_string(seed)}}, [](Rank& me) {
      me.start(0);
      me.times_in_progress = 0;
      int* const data = me.on_gpu(std::vector<int>(10, me.rank + 1));
      for (int turn = 0; turn < 4; ++turn)
        me.call(ncclAllReduce(data, data, 10, ncclInt32, ncclSum, me.comm, me.stream));
      me.require(ncclGroupStart(), "ncclGroupStart");
      int* const room = me.on_gpu(std::vector<int>(10, 0));
      me.require(ncclSend(data, 10, ncclInt32, 1 - me.rank, me.comm, me.stream), "ncclSend");
      me.require(ncclRecv(room, 10, ncclInt32, 1 - me.rank, me.comm, me.stream), "ncclRecv");
      me.call(ncclGroupEnd());
      me.wait();
      me.require(me.on_host(room, 10) == std::vector<int>(10, 24), "the sum");
      std::fprintf(stderr, "%d times", me.times_in_progress);
      me.finish();
    });
    REQUIRE(complaints(ends) == "");
    for (const End& end : ends) seen.insert(end.text);
  }
  CHECK(seen.contains("0 times"));
  CHECK(seen.contains("2 times"));
}

TEST_CASE("an event recorded while a call is in progress comes before the operation") {
  int early = 0;
  for (int seed = 1; seed <= 10; ++seed) {
    const auto ends = run_ranks(2, {{"CUSIM_SEED", std::to_string(seed)}}, [](Rank& me) {
      me.start(0);
      int* const data = me.on_gpu(std::vector<int>(1, 1));
      const ncclResult_t result = ncclAllReduce(data, data, 1, ncclInt32, ncclSum, me.comm, me.stream);
      if (result == ncclInProgress) {
        me.wait();
        std::fprintf(stderr, "early %d", me.on_host(data, 1).front());
      }
      me.call(result);
      me.wait();
      me.require(me.on_host(data, 1).front() == 2, "the sum");
      me.finish();
    });
    REQUIRE(complaints(ends) == "");
    for (const End& end : ends) early += end.text == "early 1";
  }
  CHECK(early > 0);
}

TEST_CASE("sums of floats have the same bits on all ranks, another order with another seed, and one in ring order") {
  const auto bits = [](const Environment& environment) {
    const auto ends = run_ranks(4, environment, [](Rank& me) {
      me.start();
      const std::vector<float> mine = uneven(me.rank, 5000);
      float* const data = me.on_gpu(mine);
      me.call(ncclAllReduce(data, data, mine.size(), ncclFloat32, ncclSum, me.comm, me.stream));
      me.wait();
      std::uint64_t digest = 0;
      for (const float sum : me.on_host(data, mine.size())) {
        std::uint32_t word = 0;
        std::memcpy(&word, &sum, sizeof word);
        digest = digest * 1099511628211u + word;
      }
      std::fprintf(stderr, "%llx", static_cast<unsigned long long>(digest));
      me.finish();
    });
    REQUIRE(complaints(ends) == "");
    for (const End& end : ends) CHECK(end.text == ends[0].text);
    return ends[0].text;
  };
  CHECK(bits({{"CUSIM_SEED", "1"}}) != bits({{"CUSIM_SEED", "2"}}));
  CHECK(bits({{"CUSIM_SEED", "1"}, {"CUSIM_NCCL_ORDER", "ring"}}) ==
        bits({{"CUSIM_SEED", "2"}, {"CUSIM_NCCL_ORDER", "ring"}}));
}

TEST_CASE("a communicator tells of itself, and the library of its version") {
  const auto ends = run_ranks(2, {}, [](Rank& me) {
    me.start();
    int count = 0, rank = -1, device = -1, version = 0;
    me.require(ncclCommCount(me.comm, &count), "ncclCommCount");
    me.require(ncclCommUserRank(me.comm, &rank), "ncclCommUserRank");
    me.require(ncclCommCuDevice(me.comm, &device), "ncclCommCuDevice");
    me.require(ncclGetVersion(&version), "ncclGetVersion");
    me.require(count == 2 && rank == me.rank && device == me.rank && version == NCCL_VERSION_CODE, "its words");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("a rank alone has a communicator too") {
  const auto ends = run_ranks(1, {}, [](Rank& me) {
    me.start(0);
    float* const data = me.on_gpu(std::vector<float>{1, 2});
    float* const to = me.on_gpu(std::vector<float>{0, 0});
    me.call(ncclAllReduce(data, to, 2, ncclFloat32, ncclSum, me.comm, me.stream));
    me.wait();
    me.require(me.on_host(to, 2) == std::vector<float>{1, 2}, "the sum");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("finalizing waits for what is enqueued") {
  const auto ends = run_ranks(2, {{"CUSIM_PATIENCE_MS", "-1"}}, [](Rank& me) {
    me.start(0);
    int* const data = me.on_gpu(std::vector<int>(4, me.rank));
    me.call(ncclAllReduce(data, data, 4, ncclInt32, ncclSum, me.comm, me.stream));
    me.finish();
    // Where a thread runs the streams, it may still be on its way to say so.
    me.require(me.is_done_within(1), "the stream");
    me.require(me.on_host(data, 4) == std::vector<int>(4, 1), "the sum");
  });
  CHECK(complaints(ends) == "");
}
