// Memory of the simulated runtime: what copies do when, and what is found.
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <catch2/catch.hpp>
#include <cuda_runtime_api.h>

#include "child.hpp"

using namespace cusim::test;

TEST_CASE("pinned memory is read when the copy runs, pageable memory in the call") {
  passes([] {
    const cudaStream_t stream = make_stream();
    int* const there = device_ints(2, stream);
    int* const pinned = pinned_ints(2);
    int pageable[1] = {1};
    pinned[0] = 1;
    copy_ints(there, pinned, 1, stream);
    copy_ints(there + 1, pageable, 1, stream);
    pinned[0] = 2;
    pageable[0] = 2;
    int* const back = pinned_ints(2);
    copy_ints(back, there, 2, stream);
    EXPECT(back[0] != 2);
    MUST(cudaStreamSynchronize(stream));
    EXPECT(back[0] == 2);
    EXPECT(back[1] == 1);
  });
}

TEST_CASE("a copy to pageable memory is done when the call returns") {
  passes_in_any_order([] {
    const cudaStream_t stream = make_stream();
    int* const there = device_ints(100, stream);
    set_ints(there, 100, stream);
    std::vector<int> here(100, 5);
    copy_ints(here.data(), there, 100, stream);
    EXPECT(here == std::vector<int>(100, 0));
  });
}

TEST_CASE("cudaMemcpy waits, but not for a copy within the GPU") {
  passes_in_any_order([] {
    int* const first = device_ints(3);
    int* const second = device_ints(3);
    const std::vector<int> here{1, 2, 3};
    MUST(cudaMemcpy(first, here.data(), 12, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(second, first, 12, cudaMemcpyDeviceToDevice));
    std::vector<int> back(3);
    MUST(cudaMemcpy(back.data(), second, 12, cudaMemcpyDefault));
    EXPECT(back == here);
    EXPECT(cudaMemcpy(back.data(), second, 12, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    MUST(cudaFree(first));
    MUST(cudaFree(second));
  });
}

TEST_CASE("memory that nothing has written is found when it reaches the host") {
  is_found("which nothing has written", [] {
    const cudaStream_t stream = make_stream();
    int* const there = device_ints(4, stream);
    int* const other = device_ints(4, stream);
    set_ints(there, 3, stream);
    copy_ints(other, there, 4, stream);  // within the GPU, it may be copied
    int here[4];
    copy_ints(here, other, 3, stream);
    copy_ints(here, other, 4, stream);
  });
}

TEST_CASE("accesses outside of allocations are found") {
  const auto beyond = [] {
    const cudaStream_t stream = make_stream();
    set_ints(device_ints(4, stream), 5, stream);
    MUST(cudaStreamSynchronize(stream));
  };
  is_found("outside of every allocation", beyond);
  is_found("of pinned memory", [] {
    const cudaStream_t stream = make_stream();
    copy_ints(device_ints(8, stream), pinned_ints(4), 8, stream);
    MUST(cudaStreamSynchronize(stream));
  });
}

TEST_CASE("memory is used while it is allocated") {
  is_found("to be freed", [] {
    const cudaStream_t stream = make_stream();
    int* const there = device_ints(4, stream);
    MUST(cudaFreeAsync(there, stream));
    set_ints(there, 4, stream);
  });
  is_found("freed before", [] {
    const cudaStream_t stream = make_stream();
    int* const there = device_ints(4, stream);
    MUST(cudaFreeAsync(there, stream));
    MUST(cudaFreeAsync(there, stream));
  });
  is_found("pinned memory that cudaFreeHost has freed", [] {
    const cudaStream_t stream = make_stream();
    int* const here = pinned_ints(4);
    copy_ints(device_ints(4, stream), here, 4, stream);
    MUST(cudaFreeHost(here));
    MUST(cudaStreamSynchronize(stream));
  });
  passes_in_any_order([] {
    const cudaStream_t stream = make_stream();
    int* const there = device_ints(4);
    set_ints(there, 4, stream);
    MUST(cudaFree(there));  // waits
    MUST(cudaStreamSynchronize(stream));
  });
}

TEST_CASE("other streams' uses come after the allocation and before the free, by an event") {
  const auto program = [](bool orders_begin, bool orders_end) {
    return [=] {
      const cudaStream_t owner = make_stream();
      const cudaStream_t user = make_stream();
      int* const there = device_ints(64, owner);
      if (orders_begin) order(owner, user);
      set_ints(there, 64, user);
      if (orders_end) order(user, owner);
      MUST(cudaFreeAsync(there, owner));
      MUST(cudaDeviceSynchronize());
    };
  };
  passes_in_any_order(program(true, true));
  for (const char* order : {"late", "eager", "thread"}) {
    for (int seed = 1; seed <= 5; ++seed) {
      const Environment environment{{"CUSIM_ORDER", order}, {"CUSIM_SEED", std::to_string(seed)}};
      is_found("a memset", program(false, true), environment);
      is_found("cusim: rank 0", program(true, false), environment);
    }
  }
}

TEST_CASE("work of two streams on the same bytes is ordered") {
  const auto program = [](bool orders, bool waits) {
    return [=] {
      int* const there = device_ints(64);
      const cudaStream_t first = make_stream();
      const cudaStream_t second = make_stream();
      set_ints(there, 64, first);
      if (orders) order(first, second);
      if (waits) MUST(cudaStreamSynchronize(first));
      copy_ints(pinned_ints(64), there, 64, second);
      MUST(cudaDeviceSynchronize());
    };
  };
  passes_in_any_order(program(true, false));
  passes_in_any_order(program(false, true));
  // Whichever comes first, unless the copy finds nothing to read.
  for (int seed = 1; seed <= 5; ++seed)
    is_found("a copy", program(false, false), {{"CUSIM_SEED", std::to_string(seed)}});
  is_found("without being ordered after a memset in stream", program(false, false), {{"CUSIM_ORDER", "eager"}});
}

TEST_CASE("a write comes after another stream's read, by an event") {
  const auto program = [](bool orders) {
    return [=] {
      int* const there = device_ints(64);
      const cudaStream_t first = make_stream();
      const cudaStream_t second = make_stream();
      set_ints(there, 64, first);
      MUST(cudaStreamSynchronize(first));
      copy_ints(pinned_ints(64), there, 64, first);
      if (orders) order(first, second);
      set_ints(there, 64, second);
      MUST(cudaDeviceSynchronize());
    };
  };
  passes_in_any_order(program(true));
  for (int seed = 1; seed <= 5; ++seed)
    is_found("without being ordered after", program(false), {{"CUSIM_SEED", std::to_string(seed)}});
  is_found("without being ordered after a copy in stream", program(false), {{"CUSIM_ORDER", "eager"}});
}

TEST_CASE("different bytes of an allocation may be used at once") {
  passes_in_any_order([] {
    int* const there = device_ints(64);
    set_ints(there, 31, make_stream());
    set_ints(there + 31, 33, make_stream());
    MUST(cudaDeviceSynchronize());
  });
}

TEST_CASE("the GPU's memory is finite, and freed memory comes back") {
  passes_in_any_order(
      [] {
        const cudaStream_t stream = make_stream();
        void* first = nullptr;
        void* second = nullptr;
        MUST(cudaMallocAsync(&first, 700000, stream));
        EXPECT(cudaMallocAsync(&second, 700000, stream) == cudaErrorMemoryAllocation);
        std::size_t unused = 0;
        std::size_t all = 0;
        MUST(cudaMemGetInfo(&unused, &all));
        EXPECT(all == 1 << 20);
        EXPECT(unused == all - 700000);
        MUST(cudaFreeAsync(first, stream));
        MUST(cudaMallocAsync(&second, 700000, stream));
        for (int i = 0; i < 100; ++i) {
          MUST(cudaFreeAsync(second, stream));
          MUST(cudaMallocAsync(&second, 700000, stream));
        }
      },
      {{"CUSIM_MEMORY", "1048576"}});
}

TEST_CASE("the host does not touch the GPU's memory") {
  const auto program = [] {
    int* const there = device_ints(1);
    *static_cast<volatile int*>(there) = 1;
  };
  is_found("the host touches device memory", program);
  is_found("the host touches device memory", program, {{"CUSIM_ORDER", "eager"}});
  passes(program, {{"CUSIM_GUARD", "off"}});
  is_found("the host touches device memory", [] {
    const cudaStream_t stream = make_stream();
    int* const there = device_ints(1, stream);
    set_ints(there, 1, stream);
    count_in(stream, *there);  // a host function
    MUST(cudaStreamSynchronize(stream));
  });
}

TEST_CASE("addresses say what they are") {
  passes([] {
    cudaPointerAttributes about{};
    int here = 0;
    MUST(cudaPointerGetAttributes(&about, &here));
    EXPECT(about.type == cudaMemoryTypeUnregistered);
    MUST(cudaPointerGetAttributes(&about, device_ints(2) + 1));
    EXPECT(about.type == cudaMemoryTypeDevice && about.device == 0);
    MUST(cudaHostRegister(&here, sizeof here, cudaHostRegisterDefault));
    EXPECT(cudaHostRegister(&here, sizeof here, cudaHostRegisterDefault) == cudaErrorHostMemoryAlreadyRegistered);
    MUST(cudaPointerGetAttributes(&about, &here));
    EXPECT(about.type == cudaMemoryTypeHost);
    MUST(cudaHostUnregister(&here));
  });
}

namespace {

/// Copies numbers from stream to stream, each time in order, and checks them.
void wander() {
  std::mt19937 random{static_cast<unsigned>(std::atoi(std::getenv("CUSIM_SEED")))};
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  constexpr std::size_t count = 1000;
  cudaStream_t streams[] = {make_stream(), make_stream(), make_stream(cudaStreamDefault), nullptr};
  int* const begin = pinned_ints(count);
  std::iota(begin, begin + count, 0);
  std::size_t at = 0;
  int* there = device_ints(count, streams[at]);
  copy_ints(there, begin, count, streams[at]);
  for (int step = 0; step < 60; ++step) {
    const std::size_t next = below(4);
    order(streams[at], streams[next]);
    int* const copy = device_ints(count, streams[next]);
    copy_ints(copy, there, count, streams[next]);
    MUST(cudaFreeAsync(there, streams[next]));
    there = copy;
    at = next;
    if (below(10) == 0) (void)cudaStreamQuery(streams[below(4)]);
    if (below(20) == 0) MUST(cudaStreamSynchronize(streams[below(4)]));
  }
  std::vector<int> back(count);
  copy_ints(back.data(), there, count, streams[at]);
  EXPECT(std::equal(back.begin(), back.end(), begin));
}

}  // namespace

TEST_CASE("a program that is right passes with every seed") {
  for (int seed = 1; seed <= 20; ++seed)
    for (const char* order : {"late", "eager", "thread"})
      passes(wander, {{"CUSIM_SEED", std::to_string(seed)}, {"CUSIM_ORDER", order}});
}
