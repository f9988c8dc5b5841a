// What cusim's NCCL finds in a program that uses it in a way that NCCL forbids.
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "nccl_ranks.hpp"

using namespace cusim::check;
using Catch::Matchers::Contains;

namespace {

/// One rank that does `body`, and is found.
std::string found_in(const std::function<void(Rank&)>& body, const Environment& environment = {}) {
  const auto ends = run_ranks(1, environment, body);
  CHECK(ends[0].code == found_code);
  return ends[0].text;
}

}  // namespace

TEST_CASE("the host's memory, too little memory and freed memory are foreign") {
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               std::vector<int> data(4);
               all_reduce(me, data.data(), 4);
             }),
             Contains("ncclAllReduce: foreign memory"));
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               all_reduce(me, me.on_gpu(std::vector<int>(4, 0)) + 1, 4);
             }),
             Contains("ncclAllReduce: foreign memory: 16 bytes from"));
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               int* const data = me.on_gpu(std::vector<int>(4, 0));
               me.require(cudaFree(data), "cudaFree");
               all_reduce(me, data, 4);
             }),
             Contains("ncclAllReduce: foreign memory"));
}

TEST_CASE("memory that nobody has written is not sent, nor memory that the stream has freed") {
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               void* data = nullptr;
               me.require(cudaMalloc(&data, 16), "cudaMalloc");
               all_reduce(me, static_cast<int*>(data), 4);
               me.wait();
             }),
             Contains("ncclAllReduce") && Contains("which nothing has written"));
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               void* data = nullptr;
               me.require(cudaMallocAsync(&data, 16, me.stream), "cudaMallocAsync");
               me.require(cudaMemsetAsync(data, 0, 16, me.stream), "cudaMemsetAsync");
               cudaStream_t other = nullptr;
               me.require(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
               me.wait();
               all_reduce(me, static_cast<int*>(data), 4);
               me.require(cudaFreeAsync(data, other), "cudaFreeAsync");
               me.require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
             }),
             Contains("ncclAllReduce"));
}

TEST_CASE("pinned memory is not foreign") {
  const auto ends = run_ranks(2, {}, [](Rank& me) {
    me.start();
    void* made = nullptr;
    me.require(cudaMallocHost(&made, 16), "cudaMallocHost");
    auto* const data = static_cast<int*>(made);
    std::fill_n(data, 4, me.rank + 1);
    me.call(all_reduce(me, data, 4));
    me.wait();
    me.require(std::vector<int>(data, data + 4) == std::vector<int>(4, 3), "the sum");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("two threads in one communicator are found") {
  CHECK_THAT(found_in([](Rank& me) {
               me.start(0);
               const auto look = [&] {
                 for (int i = 0; i < 100'000; ++i) {
                   ncclResult_t state = ncclSuccess;
                   ncclCommGetAsyncError(me.comm, &state);
                 }
               };
               std::thread other{look};
               look();
               other.join();
             }),
             Contains("two threads are in one communicator"));
  CHECK_THAT(found_in([](Rank& me) {
               me.start(0);
               me.require(ncclGroupStart(), "ncclGroupStart");
               all_reduce(me, me.on_gpu(std::vector<int>(4, 0)), 4);
               std::thread{[&] {
                 ncclResult_t state = ncclSuccess;
                 ncclCommGetAsyncError(me.comm, &state);
               }}.join();
             }),
             Contains("while another has it in a group"));
}

TEST_CASE("threads that take turns are not found") {
  const auto ends = run_ranks(2, {}, [](Rank& me) {
    me.start(0);
    int* const data = me.on_gpu(std::vector<int>(4, 1));
    for (int turn = 0; turn < 4; ++turn) std::thread{[&] { me.call(all_reduce(me, data, 4)); }}.join();
    me.wait();
    me.require(me.on_host(data, 4) == std::vector<int>(4, 16), "the sum");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("a call while another is in progress is found, but not a look or an abort") {
  CHECK_THAT(found_in([](Rank& me) {
               me.start(0);
               int* const data = me.on_gpu(std::vector<int>(4, 0));
               for (int i = 0; i < 50; ++i) all_reduce(me, data, 4);
             }),
             Contains("ncclAllReduce while ncclAllReduce is in progress"));
  CHECK_THAT(found_in([](Rank& me) {
               ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
               config.blocking = 0;
               ncclUniqueId id = me.id();
               ncclCommInitRankConfig(&me.comm, 2, id, 0, &config);
               int count = 0;
               ncclCommCount(me.comm, &count);
             }),
             Contains("ncclCommCount while its start is in progress"));
  const auto ends = run_ranks(1, {}, [](Rank& me) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId id = me.id();
    me.require(ncclCommInitRankConfig(&me.comm, 2, id, 0, &config) == ncclInProgress, "it waits for the other rank");
    ncclResult_t state = ncclSuccess;
    me.require(ncclCommGetAsyncError(me.comm, &state), "a look");
    me.require(state == ncclInProgress, "the state");
    me.require(ncclCommAbort(me.comm), "ncclCommAbort");
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("a communicator that has ended is not used") {
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               me.require(ncclCommDestroy(me.comm), "ncclCommDestroy");
               all_reduce(me, me.on_gpu(std::vector<int>(4, 0)), 4);
             }),
             Contains("ncclAllReduce on a communicator that was destroyed"));
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               me.require(ncclCommAbort(me.comm), "ncclCommAbort");
               ncclCommAbort(me.comm);
             }),
             Contains("ncclCommAbort on a communicator that was destroyed"));
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               me.require(ncclCommFinalize(me.comm), "ncclCommFinalize");
               all_reduce(me, me.on_gpu(std::vector<int>(4, 0)), 4);
             }),
             Contains("ncclAllReduce on a communicator that was finalized"));
}

TEST_CASE("buffers that overlap are found") {
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               int* const data = me.on_gpu(std::vector<int>(8, 0));
               ncclAllReduce(data, data + 1, 4, ncclInt32, ncclSum, me.comm, me.stream);
             }),
             Contains("the two buffers overlap"));
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               int* const data = me.on_gpu(std::vector<int>(8, 0));
               ncclGroupStart();
               all_reduce(me, data, 4);
               all_reduce(me, data + 3, 4);
               ncclGroupEnd();
             }),
             Contains("of the same group writes"));
}

TEST_CASE("a unique id serves one communicator, and only one that was made") {
  CHECK_THAT(found_in([](Rank& me) {
               me.start();
               ncclUniqueId id = me.id();
               ncclComm_t first = nullptr, second = nullptr;
               me.require(ncclCommInitRank(&first, 1, id, 0), "ncclCommInitRank");
               ncclCommInitRank(&second, 1, id, 0);
             }),
             Contains("has been used before"));
  CHECK_THAT(found_in([](Rank& me) {
               ncclUniqueId id{};
               ncclCommInitRank(&me.comm, 1, id, 0);
             }),
             Contains("none that ncclGetUniqueId made"));
  CHECK_THAT(found_in([](Rank& me) {
               ncclUniqueId id = me.id();
               id.internal[100] = 0;
               ncclCommInitRank(&me.comm, 1, id, 0);
             }),
             Contains("none that ncclGetUniqueId made"));
}

TEST_CASE("arguments that NCCL refuses are refused") {
  const auto ends = run_ranks(1, {}, [](Rank& me) {
    ncclUniqueId id = me.id();
    ncclConfig_t none{};
    me.require(ncclCommInitRankConfig(&me.comm, 1, id, 0, &none) == ncclInvalidArgument, "no initializer");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.size -= 8;
    me.require(ncclCommInitRankConfig(&me.comm, 1, id, 0, &config) == ncclInvalidArgument, "another size");
    me.require(ncclCommInitRank(&me.comm, 1, id, 1) == ncclInvalidArgument, "rank 1 of 1");
    me.start();
    int* const data = me.on_gpu(std::vector<int>(8, 0));
    me.require(ncclBroadcast(data, data, 1, ncclInt32, 1, me.comm, me.stream) == ncclInvalidArgument, "root 1 of 1");
    me.require(ncclBroadcast(data, data, 1, ncclNumTypes, 0, me.comm, me.stream) == ncclInvalidArgument, "no type");
    me.require(ncclAllReduce(data, data, 1, ncclInt32, ncclNumOps, me.comm, me.stream) == ncclInvalidArgument, "no op");
    me.require(ncclSend(data, 1, ncclInt32, 0, me.comm, me.stream) == ncclInvalidUsage, "a send to oneself alone");
    me.require(ncclGroupEnd() == ncclInvalidUsage, "no group");
    me.finish();
  });
  CHECK(complaints(ends) == "");
}

TEST_CASE("two ranks on one GPU are refused, unless they pose as hosts of their own or are allowed to share") {
  const auto body = [](Rank& me) {
    const ncclResult_t result = me.init(0);
    std::fprintf(stderr, "%d", result);
    if (result == ncclSuccess)
      me.finish();
    else
      me.require(ncclCommAbort(me.comm), "ncclCommAbort");
  };
  for (const End& end : run_ranks(2, {{"CUSIM_DEVICES", "1"}}, body))
    CHECK(end.text == std::to_string(ncclInvalidUsage));
  for (const End& end : run_ranks(2, {{"CUSIM_DEVICES", "1"}, {"CUSIM_SHARED_GPU", "allow"}}, body))
    CHECK(end.text == std::to_string(ncclSuccess));
  const auto ends = run_ranks(2, {{"CUSIM_DEVICES", "1"}}, [&](Rank& me) {
    ::setenv("NCCL_HOSTID", std::to_string(me.rank).c_str(), 1);
    body(me);
  });
  for (const End& end : ends) CHECK(end.text == std::to_string(ncclSuccess));
}
