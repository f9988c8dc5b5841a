// The collectives over a scripted NCCL: what is called with what, in which order, and between which events.
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/base/log_settings.hpp"
#include "core/comm/communicator.hpp"
#include "support/done_communicator.hpp"
#include "support/fake_nccl.hpp"

using namespace lockstep;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using lockstep::test::DoneCommunicator;
using lockstep::test::FakeWorld;

namespace {

using Lines = std::vector<std::string>;

constexpr int u8 = ncclUint8;

Tensor floats(std::int64_t count) {
  return Tensor::zeros(DType::f32, {count});
}

/// A tensor of `dtype` over memory that nobody reads.
TensorView view_of(DType dtype, std::int64_t count) {
  static std::byte memory[64];
  return {memory, {count}, dtype};
}

std::string of_type(const char* call, std::size_t count, int type) {
  return std::string{call} + " " + std::to_string(count) + " of type " + std::to_string(type) + " on nccl";
}

/// The lines that begin so, in order.
Lines only(const Lines& lines, const std::string& start) {
  Lines found;
  for (const std::string& line : lines)
    if (line.rfind(start, 0) == 0) found.push_back(line);
  return found;
}

}  // namespace

TEST_CASE("a collective comes after the compute stream's work, and its wait is the compute stream's", "[B-19]") {
  FakeWorld world;
  const auto communicator = world.communicator(1, 2);
  const Tensor tensor = floats(3);
  Work work = communicator->all_reduce(tensor.view());
  CHECK_THAT(world.journal.lines(), Equals(Lines{"record compute@1", "nccl waits for compute@1", "look",
                                                 of_type("all_reduce", 3, ncclFloat32), "record nccl@4"}));
  world.journal.clear();
  work.wait();
  CHECK_THAT(world.journal.lines(), Equals(Lines{"look", "compute waits for nccl@4"}));
}

TEST_CASE("the end of a collective is recorded only once NCCL has enqueued it") {
  FakeWorld world;
  const auto communicator = world.communicator(0, 2);
  world.nccl->script("all_reduce", {ncclInProgress});
  world.nccl->states({ncclSuccess, ncclInProgress, ncclInProgress, ncclSuccess});
  const int pauses = world.clock->pauses;
  const Tensor tensor = floats(3);
  (void)communicator->all_reduce(tensor.view());
  CHECK_THAT(world.journal.lines(),
             Equals(Lines{"record compute@1", "nccl waits for compute@1", "look", of_type("all_reduce", 3, ncclFloat32),
                          "look", "look", "look", "record nccl@4"}));
  CHECK(world.clock->pauses - pauses == 3);
}

TEST_CASE("the elements of a sum keep their type") {
  FakeWorld world;
  const auto communicator = world.communicator(0, 2);
  const std::vector<std::pair<DType, int>> types{
      {DType::f32, ncclFloat32}, {DType::f64, ncclFloat64}, {DType::f16, ncclFloat16}, {DType::bf16, ncclBfloat16},
      {DType::i32, ncclInt32},   {DType::i64, ncclInt64},   {DType::u8, ncclUint8},
  };
  for (const auto& [dtype, nccl] : types) {
    world.journal.clear();
    (void)communicator->all_reduce(view_of(dtype, 5));
    (void)communicator->reduce(view_of(dtype, 5), 1);
    CHECK(world.journal.count(of_type("all_reduce", 5, nccl)) == 1);
    CHECK(world.journal.count(of_type("reduce", 5, nccl) + " to 1") == 1);
  }
}

TEST_CASE("a broadcast moves bytes, whatever they stand for") {
  FakeWorld world;
  const auto communicator = world.communicator(1, 3);
  (void)communicator->broadcast(view_of(DType::f64, 5), 2);
  CHECK(world.journal.count(of_type("broadcast", 40, u8) + " from 2") == 1);
}

TEST_CASE("a tensor without elements is nobody's message") {
  FakeWorld world;
  const auto communicator = world.communicator(0, 2);
  const std::vector<std::int64_t> nothing{0, 0, 0};
  communicator->broadcast(view_of(DType::f32, 0), 0).wait();
  communicator->all_reduce(view_of(DType::f32, 0)).wait();
  communicator->reduce(view_of(DType::f32, 0), 0).wait();
  communicator->all_gather(view_of(DType::f32, 0), nothing).wait();
  communicator->gather(view_of(DType::f32, 0), nothing, 1).wait();
  communicator->all_to_all(view_of(DType::f32, 0), nothing, view_of(DType::f32, 0)).wait();
  CHECK(world.journal.count("group_start") == 0);
  CHECK(only(world.journal.lines(), "nccl copies").empty());
  CHECK(only(world.journal.lines(), "broadcast").empty());
  CHECK(only(world.journal.lines(), "all_reduce").empty());
  CHECK(only(world.journal.lines(), "reduce").empty());
}

TEST_CASE("all_gather sends its own slice to each and receives each one's, as long as they are") {
  FakeWorld world;
  const auto communicator = world.communicator(1, 4);
  const Tensor whole = floats(9);
  world.nccl->origin = whole.view().data();
  const std::vector<std::int64_t> bounds{0, 4, 6, 6, 9};
  communicator->all_gather(whole.view(), bounds).wait();
  CHECK_THAT(world.journal.lines(),
             Equals(Lines{"record compute@1", "nccl waits for compute@1", "look", "group_start",
                          of_type("send", 8, u8) + " to 2 at 16", of_type("send", 8, u8) + " to 3 at 16",
                          of_type("send", 8, u8) + " to 0 at 16",
                          // Rank 2 has nothing to send.
                          of_type("recv", 12, u8) + " from 3 at 24", of_type("recv", 16, u8) + " from 0 at 0",
                          "group_end", "record nccl@4", "look", "compute waits for nccl@4"}));
}

TEST_CASE("a rank without a slice only receives in all_gather") {
  FakeWorld world;
  const auto communicator = world.communicator(2, 4);
  const Tensor whole = floats(9);
  world.nccl->origin = whole.view().data();
  const std::vector<std::int64_t> bounds{0, 4, 6, 6, 9};
  (void)communicator->all_gather(whole.view(), bounds);
  CHECK(only(world.journal.lines(), "send").empty());
  CHECK_THAT(only(world.journal.lines(), "recv"),
             Equals(Lines{of_type("recv", 12, u8) + " from 3 at 24", of_type("recv", 16, u8) + " from 0 at 0",
                          of_type("recv", 8, u8) + " from 1 at 16"}));
}

TEST_CASE("gather sends to the root alone, which receives from all") {
  const std::vector<std::int64_t> bounds{0, 4, 6, 6, 9};
  const Tensor whole = floats(9);
  const auto messages = [&](int rank) {
    FakeWorld world;
    const auto communicator = world.communicator(rank, 4);
    world.nccl->origin = whole.view().data();
    (void)communicator->gather(whole.view(), bounds, 3);
    Lines found = only(world.journal.lines(), "send");
    const Lines received = only(world.journal.lines(), "recv");
    found.insert(found.end(), received.begin(), received.end());
    return found;
  };
  CHECK_THAT(messages(0), Equals(Lines{of_type("send", 16, u8) + " to 3 at 0"}));
  CHECK_THAT(messages(1), Equals(Lines{of_type("send", 8, u8) + " to 3 at 16"}));
  CHECK_THAT(messages(2), Equals(Lines{}));
  CHECK_THAT(messages(3),
             Equals(Lines{of_type("recv", 16, u8) + " from 0 at 0", of_type("recv", 8, u8) + " from 1 at 16"}));
}

TEST_CASE("all_to_all sends each rank its slice, receives its own from each, and copies the one it keeps") {
  FakeWorld world;
  const auto communicator = world.communicator(1, 3);
  // One tensor, so that all places count from its start: 6 elements to send, then room for 3 pieces of 2.
  const Tensor both = Tensor::from<float>({1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0}, {12});
  world.nccl->origin = both.view().data();
  const std::vector<std::int64_t> bounds{0, 3, 5, 6};
  communicator->all_to_all(both.view().slice(0, 6), bounds, both.view().slice(6, 6)).wait();
  CHECK_THAT(world.journal.lines(),
             Equals(Lines{"record compute@1", "nccl waits for compute@1", "nccl copies 8", "look", "group_start",
                          of_type("send", 4, u8) + " to 2 at 20", of_type("send", 12, u8) + " to 0 at 0",
                          of_type("recv", 8, u8) + " from 2 at 40", of_type("recv", 8, u8) + " from 0 at 24",
                          "group_end", "record nccl@4", "look", "compute waits for nccl@4"}));
  CHECK(both.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6, 0, 0, 4, 5, 0, 0});
}

TEST_CASE("all_to_all of a rank without a slice sends, and receives nothing") {
  FakeWorld world;
  const auto communicator = world.communicator(1, 3);
  const Tensor mine = floats(6);
  world.nccl->origin = mine.view().data();
  const std::vector<std::int64_t> bounds{0, 3, 3, 6};
  (void)communicator->all_to_all(mine.view(), bounds, floats(0).view());
  CHECK_THAT(only(world.journal.lines(), "send"),
             Equals(Lines{of_type("send", 12, u8) + " to 2 at 12", of_type("send", 12, u8) + " to 0 at 0"}));
  CHECK(only(world.journal.lines(), "recv").empty());
  CHECK(only(world.journal.lines(), "nccl copies").empty());
}

TEST_CASE("alone, nothing is sent") {
  FakeWorld world;
  const auto communicator = world.communicator(0, 1);
  const Tensor mine = Tensor::from<float>({1, 2}, {2});
  const Tensor received = floats(2);
  const std::vector<std::int64_t> bounds{0, 2};
  communicator->all_gather(mine.view(), bounds).wait();
  communicator->all_to_all(mine.view(), bounds, received.view()).wait();
  CHECK(world.journal.count("group_start") == 0);
  CHECK(received.to_vector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("a group in progress is waited for like a call") {
  FakeWorld world;
  const auto communicator = world.communicator(0, 2);
  world.nccl->script("group_end", {ncclInProgress});
  world.nccl->states({ncclSuccess, ncclInProgress, ncclSuccess});
  const Tensor whole = floats(2);
  const std::vector<std::int64_t> bounds{0, 1, 2};
  (void)communicator->all_gather(whole.view(), bounds);
  const Lines lines = world.journal.lines();
  CHECK_THAT(Lines(lines.end() - 4, lines.end()), Equals(Lines{"group_end", "look", "look", "record nccl@4"}));
}

TEST_CASE("a call that fails is an error with its name, NCCL's text, the device and the rank") {
  FakeWorld world;
  const auto communicator = world.communicator(1, 2);
  const Tensor whole = floats(2);
  const std::vector<std::int64_t> bounds{0, 1, 2};
  SECTION("at once") {
    world.nccl->script("reduce", {ncclInvalidUsage});
    CHECK_THROWS_WITH((void)communicator->reduce(whole.view(), 0), "ncclReduce failed on gpu:7 of rank 1: text 5");
  }
  SECTION("of a guest with the rank that the log has") {
    log::set_rank(5);
    world.nccl->script("reduce", {ncclInvalidUsage});
    CHECK_THROWS_WITH((void)communicator->reduce(whole.view(), 0), "ncclReduce failed on gpu:7 of rank 5: text 5");
    log::set_rank(-1);
  }
  SECTION("later, while it was in progress") {
    world.nccl->script("broadcast", {ncclInProgress});
    world.nccl->states({ncclSuccess, ncclInProgress, ncclSystemError});
    CHECK_THROWS_WITH((void)communicator->broadcast(whole.view(), 0),
                      "ncclBroadcast failed on gpu:7 of rank 1: text 2");
  }
  SECTION("inside a group, which is ended all the same") {
    world.nccl->script("recv", {ncclInvalidArgument});
    world.nccl->script("group_end", {ncclInvalidArgument});
    CHECK_THROWS_WITH((void)communicator->all_gather(whole.view(), bounds),
                      "ncclRecv failed on gpu:7 of rank 1: text 4");
    CHECK(world.journal.count("group_end") == 1);
  }
  SECTION("at the end of a group") {
    world.nccl->script("group_end", {ncclUnhandledCudaError});
    CHECK_THROWS_WITH((void)communicator->all_gather(whole.view(), bounds),
                      "ncclGroupEnd failed on gpu:7 of rank 1: text 1");
  }
}

TEST_CASE("a failure of an earlier collective stops the next call, and the next wait") {
  FakeWorld world;
  const auto communicator = world.communicator(0, 2);
  const Tensor tensor = floats(1);
  Work earlier = communicator->all_reduce(tensor.view());
  world.nccl->states({ncclRemoteError});
  world.journal.clear();
  CHECK_THROWS_WITH((void)communicator->broadcast(tensor.view(), 0),
                    "a collective failed before broadcast on gpu:7 of rank 0: text 6");
  CHECK_THROWS_WITH(earlier.wait(), Contains("before the wait for a collective") && Contains("text 6"));
  CHECK(only(world.journal.lines(), "broadcast").empty());
  CHECK(only(world.journal.lines(), "compute waits").empty());
}

TEST_CASE("a call that stays in progress is an error in the end") {
  FakeWorld world;
  const auto communicator = world.communicator(0, 2);
  world.nccl->script("all_reduce", {ncclInProgress});
  world.nccl->states({ncclSuccess, ncclInProgress});
  const int pauses = world.clock->pauses;
  const Tensor tensor = floats(1);
  CHECK_THROWS_WITH((void)communicator->all_reduce(tensor.view()),
                    "ncclAllReduce is still in progress on gpu:7 of rank 0 after 5 s");
  CHECK(world.clock->pauses - pauses == 50);
  world.nccl->states({ncclSuccess});
}

TEST_CASE("a call that waits for a rank with long work of its own is an error once that gets on no more") {
  FakeWorld world;
  DoneCommunicator host{0, 2};
  std::vector<std::uint64_t> progress{3, 2, 2, 1};  // at the start of the call, and at each limit
  const auto communicator = make_nccl_communicator(host, world.device, world.compute,
                                                   {.progress =
                                                        [&] {
                                                          const std::uint64_t now = progress.back();
                                                          progress.pop_back();
                                                          return now;
                                                        }},
                                                   world.tools());
  world.nccl->script("all_reduce", {ncclInProgress});
  world.nccl->states({ncclSuccess, ncclInProgress});
  const int pauses = world.clock->pauses;
  const Tensor tensor = floats(1);
  CHECK_THROWS_WITH((void)communicator->all_reduce(tensor.view()), Contains("is still in progress"));
  CHECK(world.clock->pauses - pauses == 2 * 50);
  CHECK(progress == std::vector<std::uint64_t>{3});
  world.nccl->states({ncclSuccess});
}
