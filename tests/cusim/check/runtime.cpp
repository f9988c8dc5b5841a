// Order of work, events, errors, faults and counts of the simulated runtime.
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include "child.hpp"
#include "runtime/counts.hpp"

using namespace cusim::test;

TEST_CASE("nothing runs before somebody waits") {
  passes([] {
    int done = 0;
    const cudaStream_t stream = make_stream();
    for (int i = 0; i < 100; ++i) count_in(stream, done);
    EXPECT(done == 0);
    MUST(cudaStreamSynchronize(stream));
    EXPECT(done == 100);
  });
}

TEST_CASE("a query lets a few pieces run") {
  passes([] {
    int done = 0;
    const cudaStream_t stream = make_stream();
    for (int i = 0; i < 20; ++i) count_in(stream, done);
    int asked = 0;
    for (; cudaStreamQuery(stream) == cudaErrorNotReady; ++asked) {
      EXPECT(done > asked);
      EXPECT(done < 20);
      EXPECT(asked > 0 || done <= 3);
    }
    EXPECT(asked >= 6);
    EXPECT(done == 20);
  });
}

TEST_CASE("work runs by itself when the host has made no call for a while") {
  const auto sleeps = [](int looks) {
    return [looks] {
      volatile int done = 0;
      const cudaStream_t stream = make_stream();
      count_in(stream, const_cast<int&>(done));
      for (int i = 0; i < looks && done == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{10});
      EXPECT(done == 1);
    };
  };
  constexpr int on_a_busy_machine = 2000;
  passes(sleeps(on_a_busy_machine), {{"CUSIM_PATIENCE_MS", "20"}});
  passes(sleeps(on_a_busy_machine), {{"CUSIM_ORDER", "thread"}});
  passes(sleeps(on_a_busy_machine), {{"CUSIM_ORDER", "eager"}});
  CHECK(outcome_of(sleeps(10)).code == 1);
}

TEST_CASE("work of eager streams is done in the call") {
  const auto program = [] {
    int done = 0;
    count_in(make_stream(), done);
    EXPECT(done == 1);
  };
  passes(program, {{"CUSIM_ORDER", "eager"}});
  CHECK(outcome_of(program).code == 1);
}

TEST_CASE("the seed draws the order among streams") {
  std::set<int> last_to_run;
  for (int seed = 1; seed <= 12; ++seed) {
    const auto program = [] {
      static int last = 0;
      const cudaStream_t streams[] = {make_stream(), make_stream()};
      MUST(cudaLaunchHostFunc(
          streams[0], [](void*) { last = 10; }, nullptr));
      MUST(cudaLaunchHostFunc(
          streams[1], [](void*) { last = 11; }, nullptr));
      MUST(cudaDeviceSynchronize());
      _exit(last);
    };
    const Environment environment{{"CUSIM_SEED", std::to_string(seed)}};
    const int last = outcome_of(program, environment).code;
    CHECK(outcome_of(program, environment).code == last);
    last_to_run.insert(last);
  }
  CHECK(last_to_run == std::set<int>{10, 11});
}

TEST_CASE("an event orders streams, and stands for the place where it was recorded last") {
  passes_in_any_order([] {
    static int value = 0;
    const cudaStream_t first = make_stream();
    const cudaStream_t second = make_stream();
    const cudaEvent_t event = make_event();
    for (int round = 0; round < 20; ++round) {
      value = 0;
      MUST(cudaLaunchHostFunc(
          first, [](void*) { value = 1; }, nullptr));
      MUST(cudaEventRecord(event, first));
      MUST(cudaStreamWaitEvent(second, event, 0));
      MUST(cudaLaunchHostFunc(
          second, [](void*) { value *= 10; }, nullptr));
      MUST(cudaStreamSynchronize(second));
      EXPECT(value == 10);
    }
    MUST(cudaStreamWaitEvent(second, make_event(), 0));  // never recorded: nothing to wait for
    MUST(cudaEventQuery(make_event()));
    MUST(cudaStreamSynchronize(second));
  });
}

TEST_CASE("events tell times, if they were made to") {
  passes_in_any_order([] {
    const cudaStream_t stream = make_stream();
    const cudaEvent_t begin = make_event(cudaEventDefault);
    const cudaEvent_t end = make_event(cudaEventDefault);
    float ms = -1;
    EXPECT(cudaEventElapsedTime(&ms, begin, end) == cudaErrorInvalidResourceHandle);
    MUST(cudaEventRecord(begin, stream));
    MUST(cudaEventRecord(end, stream));
    MUST(cudaEventSynchronize(end));
    MUST(cudaEventElapsedTime(&ms, begin, end));
    EXPECT(ms >= 0);
    const cudaEvent_t untimed = make_event();
    MUST(cudaEventRecord(untimed, stream));
    MUST(cudaEventSynchronize(untimed));
    EXPECT(cudaEventElapsedTime(&ms, begin, untimed) == cudaErrorInvalidResourceHandle);
  });
}

TEST_CASE("the default stream is ordered with blocking streams alone") {
  passes_in_any_order([] {
    static int value = 0;
    const cudaStream_t blocking = make_stream(cudaStreamDefault);
    for (int round = 0; round < 10; ++round) {
      value = 1;
      MUST(cudaLaunchHostFunc(
          blocking, [](void*) { value += 1; }, nullptr));
      MUST(cudaLaunchHostFunc(
          nullptr, [](void*) { value *= 10; }, nullptr));
      MUST(cudaLaunchHostFunc(
          blocking, [](void*) { value += 3; }, nullptr));
      MUST(cudaStreamSynchronize(blocking));
      EXPECT(value == 23);
    }
  });
  passes([] {
    int done = 0;
    int done_beside = 0;
    count_in(make_stream(), done_beside);
    MUST(cudaStreamSynchronize(nullptr));
    EXPECT(done_beside == 0);
    count_in(make_stream(cudaStreamDefault), done);
    MUST(cudaStreamSynchronize(nullptr));
    EXPECT(done == 1);
  });
}

TEST_CASE("the work of a destroyed stream goes on") {
  passes_in_any_order([] {
    int done = 0;
    const cudaStream_t stream = make_stream();
    for (int i = 0; i < 5; ++i) count_in(stream, done);
    const cudaEvent_t event = make_event();
    MUST(cudaEventRecord(event, stream));
    MUST(cudaStreamDestroy(stream));
    const cudaStream_t other = make_stream();
    MUST(cudaStreamWaitEvent(other, event, 0));
    MUST(cudaEventDestroy(event));
    MUST(cudaStreamSynchronize(other));
    EXPECT(done == 5);
  });
}

TEST_CASE("handles that were destroyed are found, others are refused") {
  is_found("after cudaStreamDestroy", [] {
    const cudaStream_t stream = make_stream();
    MUST(cudaStreamDestroy(stream));
    (void)cudaStreamQuery(stream);
  });
  is_found("after cudaEventDestroy", [] {
    const cudaEvent_t event = make_event();
    MUST(cudaEventDestroy(event));
    (void)cudaEventQuery(event);
  });
  passes([] {
    int none = 0;
    EXPECT(cudaStreamQuery(reinterpret_cast<cudaStream_t>(&none)) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaEventRecord(nullptr, nullptr) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaSetDevice(1) == cudaErrorInvalidDevice);
  });
}

TEST_CASE("a host function makes no calls") {
  passes_in_any_order([] {
    static cudaError_t result = cudaSuccess;
    const cudaStream_t stream = make_stream();
    MUST(cudaLaunchHostFunc(
        stream, [](void*) { result = cudaDeviceSynchronize(); }, nullptr));
    MUST(cudaStreamSynchronize(stream));
    EXPECT(result == cudaErrorNotPermitted);
  });
}

TEST_CASE("each thread has its own last error, and device") {
  passes(
      [] {
        EXPECT(cudaSetDevice(7) == cudaErrorInvalidDevice);
        std::thread{[] {
          EXPECT(cudaGetLastError() == cudaSuccess);
          MUST(cudaSetDevice(1));
        }}.join();
        int device = -1;
        MUST(cudaGetDevice(&device));
        EXPECT(device == 0);
        EXPECT(cudaPeekAtLastError() == cudaErrorInvalidDevice);
        EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
        EXPECT(cudaGetLastError() == cudaSuccess);
      },
      {{"CUSIM_DEVICES", "2"}});
}

TEST_CASE("a machine without a GPU says so") {
  passes(
      [] {
        int count = 0;
        EXPECT(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
        EXPECT(std::strcmp(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice") == 0);
      },
      {{"CUSIM_DEVICES", "0"}});
}

TEST_CASE("faults befall the calls they were asked for") {
  passes(
      [] {
        const cudaStream_t stream = make_stream();
        EXPECT(cudaEventRecord(make_event(), stream) == cudaSuccess);
        EXPECT(cudaEventRecord(make_event(), stream) == cudaErrorLaunchTimeout);
        EXPECT(cudaEventRecord(make_event(), stream) == cudaSuccess);
        void* memory = nullptr;
        EXPECT(cudaMallocAsync(&memory, 8, stream) == cudaErrorMemoryAllocation);
        EXPECT(cudaMallocAsync(&memory, 8, stream) == cudaSuccess);
      },
      {{"CUSIM_FAULTS",
        "call=cudaEventRecord nth=2 kind=error code=702; rank=0 call=cudaMallocAsync kind=memory;"
        "rank=1 call=cudaMallocAsync nth=2 kind=memory"}});
  is_found("'calls=x' is not understood", [] { (void)cudaDeviceSynchronize(); },
           {{"CUSIM_FAULTS", "calls=x kind=error"}});
}

TEST_CASE("a late fault shows when the work runs, and stays") {
  passes(
      [] {
        const cudaStream_t stream = make_stream();
        int done = 0;
        MUST(cudaEventRecord(make_event(), stream));
        count_in(stream, done);
        EXPECT(cudaPeekAtLastError() == cudaSuccess);
        EXPECT(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
        EXPECT(done == 0);
        for (int i = 0; i < 2; ++i) EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
        void* memory = nullptr;
        EXPECT(cudaMalloc(&memory, 8) == cudaErrorIllegalAddress);
      },
      {{"CUSIM_FAULTS", "call=cudaEventRecord kind=late"}});
}

TEST_CASE("work that hangs is never done") {
  passes(
      [] {
        int done = 0;
        const cudaStream_t stream = make_stream();
        count_in(stream, done);
        count_in(stream, done);
        for (int i = 0; i < 50; ++i) EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady);
        EXPECT(done == 1);
      },
      {{"CUSIM_FAULTS", "call=cudaLaunchHostFunc nth=2 kind=hang"}});
}

TEST_CASE("calls are counted") {
  const std::string file = "/tmp/cusim-counts-" + std::to_string(getpid());
  passes(
      [] {
        const cudaStream_t stream = make_stream();
        int* const there = device_ints(4, stream);
        set_ints(there, 4, stream);
        int here[4];
        copy_ints(here, there, 4, stream);
        copy_ints(there, pinned_ints(4), 4, stream);
        while (cudaStreamQuery(stream) == cudaErrorNotReady) continue;
        EXPECT(cusim_counts("cudaMemcpyAsync") == 2);
        EXPECT(cusim_counts("copies") == 2);
        EXPECT(cusim_counts("allocations") == 2);
        EXPECT(cusim_counts("host waits") == 2);  // the copy to pageable memory, and the loop of queries
        MUST(cudaStreamSynchronize(stream));
        EXPECT(cusim_counts("host waits") == 2);  // nothing was left to wait for
        set_ints(there, 4, stream);
        const cudaEvent_t between = make_event();
        MUST(cudaEventRecord(between, stream));
        set_ints(there, 4, stream);
        while (cudaEventQuery(between) == cudaErrorNotReady) continue;
        MUST(cudaStreamSynchronize(stream));
        EXPECT(cusim_counts("host waits") == 3);  // two looks at the same work
        std::exit(0);
      },
      {{"CUSIM_COUNTS", file}, {"CUSIM_RANK", "3"}});
  std::ifstream lines{file};
  std::string line;
  std::getline(lines, line);
  CHECK(line.find("\"rank\": 3") != std::string::npos);
  CHECK(line.find("\"copies\": 2") != std::string::npos);
  std::remove(file.c_str());
}
