// What goes on beside the collectives: the watch for failures, aborts, the end, and the machine's own time.
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <stdlib.h>

#include <lockstep/core/base/error.hpp>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/nccl/shared_gpu.hpp"
#include "support/fake_nccl.hpp"

using namespace lockstep;
using Catch::Matchers::Equals;
using lockstep::test::FakeWorld;

namespace {

using Lines = std::vector<std::string>;

std::string text_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const CommError& error) {
    return error.what();
  }
}

/// What `on_failure` was called with. Written by the watch's thread.
struct Failures {
  std::function<void(std::exception_ptr)> collector() {
    return [this](std::exception_ptr failure) {
      texts.push_back(text_of(failure));
      called.set_value();
    };
  }
  /// Only after the watch has ended, or `called`.
  std::vector<std::string> texts;
  std::promise<void> called;
};

}  // namespace

TEST_CASE("a failure under way is told to on_failure, once, with device, rank and NCCL's text") {
  FakeWorld world;
  Failures failures;
  auto communicator = world.communicator(1, 2, failures.collector());
  world.ticker->beat();
  world.nccl->states({ncclInProgress});
  world.ticker->beat();
  CHECK(failures.texts.empty());
  world.nccl->states({ncclSystemError});
  world.ticker->last_beat();
  failures.called.get_future().wait();
  const Tensor tensor = Tensor::zeros(DType::f32, {1});
  CHECK_THROWS_AS((void)communicator->all_reduce(tensor.view()), CommError);
  communicator.reset();
  CHECK(failures.texts == std::vector<std::string>{"a collective under way failed on gpu:7 of rank 1: text 2"});
}

TEST_CASE("a failure of another rank is told a second later, and not at all if this rank ends meanwhile") {
  FakeWorld world;
  Failures failures;
  auto communicator = world.communicator(1, 2, failures.collector());
  world.nccl->states({ncclRemoteError});
  for (int beat = 0; beat < 10; ++beat) world.ticker->beat();
  CHECK(failures.texts.empty());
  SECTION("told") {
    world.ticker->last_beat();
    failures.called.get_future().wait();
    communicator.reset();
    CHECK(failures.texts == std::vector<std::string>{"a collective under way failed on gpu:7 of rank 1: text 6"});
  }
  SECTION("given up") {
    communicator->abort();
    world.ticker->last_beat();
    communicator.reset();
    CHECK(failures.texts.empty());
  }
  SECTION("at its end") {
    communicator.reset();
    CHECK(failures.texts.empty());
  }
}

TEST_CASE("a call that sees another rank's failure gives that rank a second to say so") {
  FakeWorld world;
  auto communicator = world.communicator(1, 2);
  const int before = world.clock->pauses;
  world.nccl->states({ncclRemoteError});
  const Tensor tensor = Tensor::zeros(DType::f32, {1});
  CHECK_THROWS_AS((void)communicator->all_reduce(tensor.view()), CommError);
  CHECK(world.clock->pauses - before == 10);
}

TEST_CASE("what work on the GPU has done wrong is not blamed on NCCL's call that found it") {
  FakeWorld world;
  auto communicator = world.communicator(0, 2);
  world.nccl->script("all_reduce", {ncclUnhandledCudaError});
  world.nccl->failed_work = "work enqueued earlier failed";
  const Tensor tensor = Tensor::zeros(DType::f32, {1});
  CHECK_THROWS_AS((void)communicator->all_reduce(tensor.view()), DeviceError);
}

TEST_CASE("an end that is stuck in NCCL's call holds nobody up") {
  FakeWorld world;
  world.limits.abort = Seconds{0.01};
  test::StuckCall stuck;
  world.nccl->in_destroy = stuck.body();
  world.communicator(0, 2).reset();
  CHECK_FALSE(stuck.has_returned());
  stuck.release();
}

TEST_CASE("a failure that a call has thrown is not told again") {
  FakeWorld world;
  Failures failures;
  auto communicator = world.communicator(0, 2, failures.collector());
  const Tensor tensor = Tensor::zeros(DType::f32, {1});
  SECTION("because the call found it") {
    world.nccl->states({ncclRemoteError});
    CHECK_THROWS_AS((void)communicator->all_reduce(tensor.view()), CommError);
  }
  SECTION("because the call failed") {
    world.nccl->script("all_reduce", {ncclSystemError});
    CHECK_THROWS_AS((void)communicator->all_reduce(tensor.view()), CommError);
    world.nccl->states({ncclSystemError});
  }
  world.ticker->beat();
  communicator.reset();
  CHECK(failures.texts.empty());
}

TEST_CASE("without on_failure nobody watches") {
  FakeWorld world;
  world.communicator(0, 2).reset();
  CHECK(world.journal.count("the watch ends") == 0);
}

TEST_CASE("the end is the watch's, then NCCL's with all ranks, then the stream's") {
  FakeWorld world;
  auto communicator = world.communicator(0, 2, [](std::exception_ptr) {});
  world.nccl->script("comm_finalize", {ncclInProgress});
  world.nccl->states({ncclInProgress, ncclSuccess});
  communicator.reset();
  CHECK_THAT(world.journal.lines(),
             Equals(Lines{"the watch ends", "comm_finalize", "look", "look", "comm_destroy", "nccl goes"}));
}

TEST_CASE("an end that fails, or that the others do not come to, is an abort") {
  FakeWorld world;
  auto communicator = world.communicator(0, 2);
  SECTION("at once") {
    world.nccl->script("comm_finalize", {ncclInvalidArgument});
  }
  SECTION("later") {
    world.nccl->script("comm_finalize", {ncclInProgress});
    world.nccl->states({ncclInProgress, ncclRemoteError});
  }
  SECTION("never") {
    world.nccl->script("comm_finalize", {ncclInProgress});
    world.nccl->states({ncclInProgress});
  }
  communicator.reset();
  CHECK(world.journal.count("comm_finalize") == 1);
  CHECK(world.journal.count("comm_abort") == 1);
  CHECK(world.journal.count("comm_destroy") == 0);
  CHECK(world.journal.lines().back() == "nccl goes");
}

TEST_CASE("an abort happens once, and nothing of NCCL's comes after it") {
  FakeWorld world;
  auto communicator = world.communicator(0, 2, [](std::exception_ptr) {});
  const Tensor tensor = Tensor::zeros(DType::f32, {1});
  Work earlier = communicator->all_reduce(tensor.view());
  world.journal.clear();
  std::thread{[&] { communicator->abort(); }}.join();
  communicator->abort();
  CHECK_THROWS_WITH((void)communicator->all_reduce(tensor.view()),
                    "all_reduce on gpu:7 of rank 0: the communicator was aborted");
  CHECK_THROWS_AS(earlier.wait(), CommError);
  world.ticker->beat();
  communicator.reset();
  CHECK_THAT(world.journal.lines(), Equals(Lines{"comm_abort", "record compute@2", "nccl waits for compute@2",
                                                 "the watch ends", "nccl goes"}));
}

TEST_CASE("an abort that is stuck holds up neither its caller nor the end") {
  FakeWorld world;
  world.limits.abort = Seconds{0.01};
  test::StuckCall stuck;
  world.nccl->in_abort = stuck.body();
  auto communicator = world.communicator(0, 2);
  communicator->abort();
  communicator->abort();
  communicator.reset();
  CHECK_FALSE(stuck.has_returned());
  CHECK_THAT(world.journal.lines(), Equals(Lines{"comm_abort", "nccl goes"}));
  stuck.release();
}

TEST_CASE("a call that waits for NCCL ends when another thread aborts") {
  FakeWorld world;
  auto communicator = world.communicator(0, 2);
  world.nccl->script("all_reduce", {ncclInProgress});
  world.nccl->states({ncclSuccess, ncclInProgress});
  world.clock->at_pause = [&] { communicator->abort(); };
  const Tensor tensor = Tensor::zeros(DType::f32, {1});
  CHECK_THROWS_WITH((void)communicator->all_reduce(tensor.view()),
                    "ncclAllReduce on gpu:7 of rank 0: the communicator was aborted");
  CHECK(world.journal.count("comm_abort") == 1);
}

TEST_CASE("a thread that is stuck inside NCCL does not keep another from aborting") {
  FakeWorld world;
  world.limits.abort = Seconds{0.01};
  auto communicator = world.communicator(0, 2);
  std::promise<void> inside;
  // Shared: the thread of the abort may be the last to know of it.
  const auto aborted = std::make_shared<std::promise<void>>();
  world.nccl->in_all_reduce = [&] {
    inside.set_value();
    aborted->get_future().wait();
  };
  world.nccl->in_abort = [aborted] { aborted->set_value(); };
  const Tensor tensor = Tensor::zeros(DType::f32, {1});
  std::thread stuck{[&] { (void)communicator->all_reduce(tensor.view()); }};
  inside.get_future().wait();
  communicator->abort();
  stuck.join();
  CHECK(world.journal.count("comm_abort") == 1);
}

TEST_CASE("while a thread is inside NCCL the watch does not wait for it") {
  FakeWorld world;
  auto communicator = world.communicator(0, 2, [](std::exception_ptr) {});
  std::promise<void> inside, go_on;
  world.nccl->in_all_reduce = [&] {
    inside.set_value();
    go_on.get_future().wait();
  };
  const Tensor tensor = Tensor::zeros(DType::f32, {1});
  std::thread stuck{[&] { (void)communicator->all_reduce(tensor.view()); }};
  inside.get_future().wait();
  const std::size_t looks = world.journal.count("look");
  world.ticker->beat();
  world.ticker->beat();
  CHECK(world.journal.count("look") == looks);
  go_on.set_value();
  stuck.join();
}

TEST_CASE("the machine's ticker beats until it is stopped") {
  const auto ticker = make_ticker(Seconds{0.001});
  CHECK(ticker->wait());
  CHECK(ticker->wait());
  ticker->stop();
  CHECK_FALSE(ticker->wait());
  const auto slow = make_ticker(Seconds{1e6});
  std::thread stopper{[&] { slow->stop(); }};
  CHECK_FALSE(slow->wait());
  stopper.join();
}

TEST_CASE("the machine's clock runs on while a loop waits") {
  const auto clock = make_poll_clock();
  Patience patience{*clock, Seconds{0.01}};
  CHECK_FALSE(Patience{*clock, Seconds{1e6}}.is_over());
  while (!patience.is_over()) patience.pause();
  CHECK(patience.limit() == Seconds{0.01});
}

TEST_CASE("processes that share a GPU are hosts of their own on one machine") {
  const std::vector<EnvironmentVariable> expected{
      {"NCCL_HOSTID", "lockstep-00000000000000c3"},
      {"NCCL_MULTI_RANK_GPU_ENABLE", "1"},
      {"NCCL_MNNVL_ENABLE", "0"},
      {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_SOCKET_IFNAME", "lo", Setting::unless_set},
      {"NCCL_IB_DISABLE", "1", Setting::unless_set},
      {"NCCL_MAX_CTAS", "2", Setting::unless_set},
  };
  CHECK(shared_gpu_environment(0xc3) == expected);

  std::set<std::string> hosts;
  for (int process = 0; process < 16; ++process) {
    ::setenv("NCCL_SOCKET_IFNAME", "", 1);
    allow_shared_gpu();
    for (const auto& [name, value, unused] : expected) {
      const char* const set = ::getenv(name.c_str());
      REQUIRE(set);
      if (name == "NCCL_HOSTID")
        hosts.insert(set);
      else
        CHECK(set == value);
      ::unsetenv(name.c_str());
    }
  }
  CHECK(hosts.size() == 16);

  // What the user has set stays, unless ranks could not share a GPU then.
  for (const auto& [name, value, setting] : expected) {
    ::setenv(name.c_str(), "mine", 1);
    allow_shared_gpu();
    CHECK((::getenv(name.c_str()) == std::string{"mine"}) == (setting == Setting::unless_set));
  }
  for (const EnvironmentVariable& each : expected) ::unsetenv(each.name.c_str());
}
