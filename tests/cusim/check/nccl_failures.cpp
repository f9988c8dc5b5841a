// How cusim's NCCL hangs and fails, and what frees it.
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "nccl_ranks.hpp"

using namespace cusim::check;
using Catch::Matchers::Contains;

namespace {

/// Each rank's part of a mismatch.
using Mismatch = std::function<ncclResult_t(Rank&, int*)>;

const std::map<std::string, Mismatch> mismatches = {
    {"kind",
     [](Rank& me, int* data) {
       return me.rank ? all_reduce(me, data) : ncclBroadcast(data, data, 4, ncclInt32, 0, me.comm, me.stream);
     }},
    {"count", [](Rank& me, int* data) { return all_reduce(me, data, me.rank ? 4 : 3); }},
    {"type",
     [](Rank& me, int* data) {
       return ncclAllReduce(data, data, 4, me.rank ? ncclInt32 : ncclFloat32, ncclSum, me.comm, me.stream);
     }},
    {"op",
     [](Rank& me, int* data) {
       return ncclAllReduce(data, data, 4, ncclInt32, me.rank ? ncclSum : ncclMax, me.comm, me.stream);
     }},
    {"root",
     [](Rank& me, int* data) { return ncclReduce(data, data, 4, ncclInt32, ncclSum, me.rank, me.comm, me.stream); }},
    {"order",
     [](Rank& me, int* data) {
       const ncclResult_t first = me.rank ? ncclSend(data, 4, ncclInt32, 0, me.comm, me.stream) : all_reduce(me, data);
       if (me.settled(first) != ncclSuccess) return first;
       return me.rank ? all_reduce(me, data) : ncclRecv(data, 4, ncclInt32, 1, me.comm, me.stream);
     }},
};

}  // namespace

TEST_CASE("calls that do not match hang, and an abort frees the streams") {
  for (const auto& [name, mismatch] : mismatches) {
    INFO(name);
    const auto ends = run_ranks(2, {}, [call = mismatch, is_symmetric = name == "count"](Rank& me) {
      me.start(0);
      int* const data = me.on_gpu(std::vector<int>(4, 1));
      me.call(call(me, data));
      // The root of a broadcast is done without the others.
      if (is_symmetric) me.require(!me.is_done_within(0.05), "it hangs by itself");
      me.call(all_reduce(me, data));
      me.require(!me.is_done_within(0.2), "it hangs");
      me.meet(0);
      me.require(ncclCommAbort(me.comm), "ncclCommAbort");
      me.wait();
    });
    CHECK(complaints(ends) == "");
  }
}

TEST_CASE("with a limit to its patience, a hang says who waits for what") {
  const auto ends = run_ranks(2, {{"CUSIM_NCCL_PATIENCE_S", "0.2"}}, [](Rank& me) {
    me.start();
    int* const data = me.on_gpu(std::vector<int>(4, 1));
    me.call(me.rank ? all_reduce(me, data, 3) : ncclReduce(data, data, 4, ncclInt32, ncclSum, 0, me.comm, me.stream));
    me.is_done_within(10);
  });
  CHECK(ends[0].code == found_code);
  CHECK_THAT(ends[0].text,
             Contains("ncclReduce of 4 i32 to rank 0 waits for rank 1, which calls ncclAllReduce of 3 i32"));
}

TEST_CASE("large sends that are not in a group wait for each other forever") {
  const auto ends = run_ranks(2, {}, [](Rank& me) {
    me.start(0);
    constexpr std::size_t count = 100'000;
    int* const mine = me.on_gpu(std::vector<int>(count, 1));
    int* const room = me.on_gpu(std::vector<int>(count, 1));
    me.call(ncclSend(mine, count, ncclInt32, 1 - me.rank, me.comm, me.stream));
    me.call(ncclRecv(room, count, ncclInt32, 1 - me.rank, me.comm, me.stream));
    me.require(!me.is_done_within(0.3), "it hangs");
    me.meet(0);
    me.require(ncclCommAbort(me.comm), "ncclCommAbort");
    me.wait();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("a large send and its receive need no group") {
  const auto ends = run_ranks(2, {}, [](Rank& me) {
    me.start(0);
    constexpr std::size_t count = 100'000;
    int* const data = me.on_gpu(std::vector<int>(count, me.rank));
    me.call(me.rank ? ncclRecv(data, count, ncclInt32, 0, me.comm, me.stream)
                    : ncclSend(data, count, ncclInt32, 1, me.comm, me.stream));
    me.wait();
    me.require(me.on_host(data, count) == std::vector<int>(count, 0), "the data");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("the death of a peer is an asynchronous error, and an abort frees the stream") {
  const auto ends = run_ranks(3, {}, [](Rank& me) {
    me.start(0);
    int* const data = me.on_gpu(std::vector<int>(4, 1));
    if (me.rank == 2) {
      me.meet(0);
      ::raise(SIGKILL);
    }
    me.call(all_reduce(me, data));
    me.meet(0);
    ncclResult_t state = ncclSuccess;
    for (int i = 0; i < 1000 && state == ncclSuccess; ++i) {
      me.is_done_within(0.002);
      me.require(ncclCommGetAsyncError(me.comm, &state), "a look");
    }
    me.require(state == ncclRemoteError, "the state");
    me.require(all_reduce(me, data) == ncclRemoteError, "a further call");
    me.require(!me.is_done_within(0.05), "the operation");
    me.require(ncclCommAbort(me.comm), "ncclCommAbort");
    me.wait();
  });
  CHECK(ends[2].code == killed_code);
  CHECK(ends[0].code == 0);
  CHECK(ends[0].text == "");
  CHECK(ends[1].code == 0);
  CHECK(ends[1].text == "");
}

TEST_CASE("the death of a peer is seen where nothing is under way") {
  const auto ends = run_ranks(2, {}, [](Rank& me) {
    me.start(0);
    me.meet(0);
    if (me.rank == 1) return;
    ncclResult_t state = ncclSuccess;
    for (int i = 0; i < 1000 && state == ncclSuccess; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
      me.require(ncclCommGetAsyncError(me.comm, &state), "a look");
    }
    me.require(state == ncclRemoteError, "the state");
    me.require(ncclCommAbort(me.comm), "ncclCommAbort");
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("an abort frees a thread that is in a call that blocks") {
  const auto ends = run_ranks(2, {}, [](Rank& me) {
    me.start();
    if (me.rank == 1) {
      me.meet(0);
      return;
    }
    std::thread other{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      ncclCommAbort(me.comm);
    }};
    me.require(ncclCommFinalize(me.comm) != ncclSuccess, "the end that rank 1 has no part in");
    other.join();
    me.meet(0);
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("faults befall the call, the communicator later, or nothing at all") {
  const auto with_fault = [](const std::string& fault) {
    return Environment{{"CUSIM_FAULTS", fault}, {"CUSIM_NCCL_HANG", "middle"}};
  };
  const auto in_call = run_ranks(2, with_fault("call=ncclAllReduce nth=2 kind=error code=3"), [](Rank& me) {
    me.start(0);
    int* const data = me.on_gpu(std::vector<int>(4, 1));
    me.call(all_reduce(me, data));
    me.require(all_reduce(me, data) == ncclInternalError, "the second call");
    me.wait();
    me.finish();
  });
  CHECK(complaints(in_call) == "");
  const auto later = run_ranks(2, with_fault("rank=0 call=ncclAllReduce kind=late"), [](Rank& me) {
    me.start(0);
    int* const data = me.on_gpu(std::vector<int>(4, 1));
    (void)me.settled(all_reduce(me, data));  // which may show the error already
    me.require(!me.is_done_within(0.1), "the operation");
    ncclResult_t state = ncclSuccess;
    me.require(ncclCommGetAsyncError(me.comm, &state), "a look");
    me.require(state == (me.rank ? ncclSuccess : ncclSystemError), "the state");
    me.meet(0);
    me.require(ncclCommAbort(me.comm), "ncclCommAbort");
    me.wait();
  });
  CHECK(complaints(later) == "");
  const auto middle = run_ranks(2, with_fault("rank=1 call=ncclAllReduce kind=hang"), [](Rank& me) {
    me.start(0);
    me.call(all_reduce(me, me.on_gpu(std::vector<int>(4, 1))));
    me.require(!me.is_done_within(0.1), "the operation");
    me.meet(0);
    me.require(ncclCommAbort(me.comm), "ncclCommAbort");
    me.wait();
  });
  CHECK(complaints(middle) == "");
}

TEST_CASE("faults befall the start and the end of a communicator") {
  const auto init = run_ranks(2, {{"CUSIM_FAULTS", "rank=1 call=ncclCommInitRankConfig kind=hang"}}, [](Rank& me) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    me.require(ncclCommInitRankConfig(&me.comm, 2, me.id(), me.rank, &config) == ncclInProgress, "the call");
    ncclResult_t state = ncclSuccess;
    for (int i = 0; i < 100; ++i) {
      me.require(ncclCommGetAsyncError(me.comm, &state), "a look");
      me.require(state == ncclInProgress, "the state");
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    me.require(ncclCommAbort(me.comm), "ncclCommAbort");
  });
  CHECK(complaints(init) == "");
  const auto late = run_ranks(2, {{"CUSIM_FAULTS", "rank=1 call=ncclCommInitRankConfig kind=late"}}, [](Rank& me) {
    me.require(me.init(0) == (me.rank ? ncclSystemError : ncclSuccess), "the start");
    me.meet(0);
    me.require(ncclCommAbort(me.comm), "ncclCommAbort");
  });
  CHECK(complaints(late) == "");
  const auto end = run_ranks(2, {{"CUSIM_FAULTS", "rank=0 call=ncclCommFinalize kind=hang"}}, [](Rank& me) {
    me.start(0);
    ncclResult_t state = ncclCommFinalize(me.comm);
    for (int i = 0; i < 100 && state == ncclInProgress; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
      me.require(ncclCommGetAsyncError(me.comm, &state), "a look");
    }
    me.require(state == ncclInProgress, "the end");
    me.meet(0);
    me.require(ncclCommAbort(me.comm), "ncclCommAbort");
  });
  CHECK(complaints(end) == "");
}
