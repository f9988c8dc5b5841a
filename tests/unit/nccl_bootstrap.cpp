// The start of NCCL among ranks that are threads: every stage's failure is one error on all of them.
#include <algorithm>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "support/done_communicator.hpp"
#include "support/fake_nccl.hpp"
#include "support/thread_communicator.hpp"
#include "support/thread_faults.hpp"

using namespace lockstep;
using Catch::Matchers::Equals;
using lockstep::test::FakeWorld;
using lockstep::test::on_threads;

namespace {

using Lines = std::vector<std::string>;

/// Ranks that start NCCL together, each in a world of its own.
struct Job {
  explicit Job(int size) {
    for (int rank = 0; rank < size; ++rank) worlds.push_back(std::make_unique<FakeWorld>());
    errors.resize(worlds.size());
  }

  FakeWorld& world(int rank) { return *worlds[static_cast<std::size_t>(rank)]; }

  /// Runs the start, and ends what was started.
  void start(Seconds timeout = Seconds{2}) {
    on_threads(static_cast<int>(worlds.size()), [&](Communicator& host) {
      FakeWorld& mine = world(host.rank());
      try {
        const bool lacks = host.rank() == without_threads;
        const auto none = lacks ? std::make_unique<lockstep::test::NoThreads>() : nullptr;
        NcclOptions options{.init_timeout = timeout};
        if (without_threads >= 0) options.on_failure = [](const std::exception_ptr&) {};
        (void)make_nccl_communicator(host, mine.device, mine.compute, std::move(options), mine.tools());
      } catch (const CommError& error) {
        errors[static_cast<std::size_t>(host.rank())] = error.what();
      }
    });
  }

  bool all_failed_with(const std::string& what) const {
    return std::all_of(errors.begin(), errors.end(), [&](const std::string& error) { return error == what; });
  }
  /// How many ranks called what.
  std::vector<std::size_t> counts(const std::string& line) const {
    std::vector<std::size_t> all;
    for (const auto& world : worlds) all.push_back(world->journal.count(line));
    return all;
  }

  std::vector<std::unique_ptr<FakeWorld>> worlds;
  int without_threads = -1;         ///< the rank that can start none
  std::vector<std::string> errors;  ///< by rank; empty for one that started
};

using Counts = std::vector<std::size_t>;

}  // namespace

TEST_CASE("a start is an id, a communicator, an all-reduce whose end is polled, and an orderly end") {
  Job job{3};
  for (const auto& world : job.worlds) world->device.looks_until_done = 3;
  job.world(1).nccl->script("comm_init", {ncclInProgress});
  job.world(1).nccl->states({ncclInProgress, ncclInProgress, ncclSuccess});
  job.start();
  CHECK(job.all_failed_with(""));
  const Lines ending{"nccl copies 4", "record nccl@1", "look",     "all_reduce 1 of type 2 on nccl",
                     "record nccl@2", "look",
                     "look",  // the event was not done twice
                     "nccl copies 4", "record nccl@3", "look",     "look",
                     "comm_finalize", "comm_destroy",  "nccl goes"};
  Lines first{"get_unique_id", "comm_init 0 of 3"};
  Lines second{"comm_init 1 of 3", "look", "look", "look"};
  Lines third{"comm_init 2 of 3"};
  for (Lines* lines : {&first, &second, &third}) lines->insert(lines->end(), ending.begin(), ending.end());
  CHECK_THAT(job.world(0).journal.lines(), Equals(first));
  CHECK_THAT(job.world(1).journal.lines(), Equals(second));
  CHECK_THAT(job.world(2).journal.lines(), Equals(third));
}

TEST_CASE("all bytes of rank 0's id reach every rank", "[D-25]") {
  Job job{4};
  job.start();
  for (const auto& world : job.worlds) {
    const auto& bytes = world->nccl->seen_id.internal;
    for (std::size_t i = 0; i < sizeof bytes; ++i) REQUIRE(bytes[i] == static_cast<char>(i + 1));
  }
}

TEST_CASE("without an id nobody enters NCCL") {
  Job job{3};
  job.world(0).nccl->script("get_unique_id", {ncclSystemError});
  job.start();
  CHECK(job.all_failed_with("NCCL did not start because of rank 0: ncclGetUniqueId failed on gpu:7 of rank 0: text 2"));
  for (int rank = 0; rank < 3; ++rank)
    CHECK(job.counts("comm_init " + std::to_string(rank) + " of 3") == Counts{0, 0, 0});
}

TEST_CASE("nobody enters NCCL while one rank is not ready") {
  Job job{3};
  job.world(2).device.failure = "the GPU is gone";
  job.world(1).device.failure = "the GPU is elsewhere";
  job.start();
  CHECK(job.all_failed_with("NCCL did not start because of rank 1: the GPU is elsewhere"));
  for (int rank = 0; rank < 3; ++rank)
    CHECK(job.counts("comm_init " + std::to_string(rank) + " of 3") == Counts{0, 0, 0});
}

TEST_CASE("nobody enters NCCL while one rank has no thread for the limit on its start") {
  Job job{3};
  job.without_threads = 1;
  job.start();
  for (const std::string& error : job.errors)
    CHECK_THAT(error, Catch::StartsWith("NCCL did not start because of rank 1: no thread for the limit on the start of "
                                        "NCCL could be started: "));
  for (int rank = 0; rank < 3; ++rank)
    CHECK(job.counts("comm_init " + std::to_string(rank) + " of 3") == Counts{0, 0, 0});
}

TEST_CASE("one rank whose init fails is the error of all, also of those that wait in vain") {
  Job job{4};
  for (const int rank : {0, 1, 3}) {
    job.world(rank).nccl->script("comm_init", {ncclInProgress});
    job.world(rank).nccl->states({ncclInProgress});
  }
  job.world(2).nccl->script("comm_init", {ncclUnhandledCudaError});
  job.start(Seconds{2});
  CHECK(job.all_failed_with(
      "NCCL did not start because of rank 2: ncclCommInitRankConfig failed on gpu:7 of rank 2: text 1"));
  CHECK(job.world(0).clock->pauses == 20);
  CHECK(job.world(2).clock->pauses == 0);
  CHECK(job.counts("comm_abort") == Counts{1, 1, 1, 1});
  CHECK(job.counts("comm_finalize") == Counts{0, 0, 0, 0});
  CHECK(job.counts("comm_destroy") == Counts{0, 0, 0, 0});
  CHECK(job.counts("all_reduce 1 of type 2 on nccl") == Counts{0, 0, 0, 0});
}

TEST_CASE("an init that fails while in progress is known by its asynchronous state") {
  Job job{2};
  job.world(1).nccl->script("comm_init", {ncclInProgress});
  job.world(1).nccl->states({ncclInProgress, ncclRemoteError});
  job.start();
  CHECK(job.all_failed_with(
      "NCCL did not start because of rank 1: ncclCommInitRankConfig failed on gpu:7 of rank 1: text 6"));
}

TEST_CASE("where every rank waited in vain none is named") {
  Job job{2};
  for (const auto& world : job.worlds) {
    world->nccl->script("comm_init", {ncclInProgress});
    world->nccl->states({ncclInProgress});
  }
  job.start(Seconds{0.5});
  CHECK(
      job.all_failed_with("NCCL did not start on any rank: ncclCommInitRankConfig is still in progress on gpu:7 of "
                          "rank 0 after 0.5 s"));
}

TEST_CASE("a rank that sees another go is not to blame for the start if that one says what happened") {
  Job job{2};
  job.world(0).nccl->script("comm_init", {ncclRemoteError});
  job.world(1).nccl->script("comm_init", {ncclSystemError});
  job.start();
  CHECK(job.all_failed_with(
      "NCCL did not start because of rank 1: ncclCommInitRankConfig failed on gpu:7 of rank 1: text 2"));
}

TEST_CASE("a call of the start that does not return is told a second after its time") {
  FakeWorld world;
  std::promise<std::string> told;
  const auto on_failure = [&](const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const StallError& error) {
      told.set_value(error.what());
    }
  };
  const std::shared_future<std::string> text = told.get_future().share();
  world.nccl->in_init = [&] { text.wait(); };
  lockstep::test::DoneCommunicator host{0, 1};
  (void)make_nccl_communicator(host, world.device, world.compute,
                               {.init_timeout = Seconds{0.01}, .on_failure = on_failure}, world.tools());
  CHECK(text.get() == "NCCL did not start: ncclCommInitRankConfig has not returned on gpu:7 of rank 0 for 1.01 s");
}

TEST_CASE("where no rank failed the lowest that waited in vain is named") {
  Job job{3};
  for (const int rank : {1, 2}) {
    job.world(rank).nccl->script("comm_init", {ncclInProgress});
    job.world(rank).nccl->states({ncclInProgress});
  }
  job.start(Seconds{0.5});
  CHECK(
      job.all_failed_with("NCCL did not start because of rank 1: ncclCommInitRankConfig is still in progress on "
                          "gpu:7 of rank 1 after 0.5 s"));
  CHECK(job.counts("comm_abort") == Counts{1, 1, 1});
}

TEST_CASE("a warm-up that does not end is an error within the time of the whole start") {
  Job job{2};
  job.world(1).nccl->script("comm_init", {ncclInProgress});
  job.world(1).nccl->states({ncclInProgress, ncclInProgress, ncclInProgress, ncclInProgress, ncclSuccess});
  job.world(1).device.looks_until_done = -1;
  job.start(Seconds{2});
  CHECK(job.all_failed_with(
      "NCCL did not start because of rank 1: the copy before the first all-reduce was not done on rank 1 after 2 s"));
  CHECK(job.world(1).clock->pauses == 20);
  CHECK(job.counts("comm_abort") == Counts{1, 1});
}

TEST_CASE("a warm-up that fails, or adds up wrongly, is an error on all") {
  Job job{2};
  SECTION("when it is called") {
    job.world(0).nccl->script("all_reduce", {ncclInternalError});
    job.start();
    CHECK(job.all_failed_with("NCCL did not start because of rank 0: ncclAllReduce failed on gpu:7 of rank 0: text 3"));
  }
  SECTION("when it is under way") {
    job.world(1).device.looks_until_done = -1;
    job.world(1).nccl->states({ncclSuccess, ncclSuccess, ncclRemoteError});
    job.start();
    CHECK(
        job.all_failed_with("NCCL did not start because of rank 1: a collective failed before the end of the "
                            "warm-up on gpu:7 of rank 1: text 6"));
  }
  SECTION("in its sum") {
    job.world(1).nccl->sum_is_off_by = 1;
    job.start();
    CHECK(
        job.all_failed_with("NCCL did not start because of rank 1: the first all-reduce gave 4 on rank 1, where 2 "
                            "ranks add up to 3"));
  }
  CHECK(job.counts("comm_abort") == Counts{1, 1});
  CHECK(job.counts("comm_finalize") == Counts{0, 0});
}

TEST_CASE("an abort that is stuck does not keep a failed start from its error") {
  Job job{2};
  test::StuckCall stuck;
  job.world(0).limits.abort = Seconds{0.01};
  job.world(0).nccl->in_abort = stuck.body();
  job.world(1).nccl->script("comm_init", {ncclSystemError});
  job.start();
  CHECK_FALSE(stuck.has_returned());
  CHECK(job.all_failed_with(
      "NCCL did not start because of rank 1: ncclCommInitRankConfig failed on gpu:7 of rank 1: text 2"));
  stuck.release();
}
