// That cusim finds what is wrong in a kernel, and nothing in a right one.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <cuda_runtime_api.h>

#include "child.hpp"
#include "kernel_cases.hpp"

using namespace cusim::test;

namespace {

int* memory_with(const std::vector<int>* content) {
  void* memory = nullptr;
  constexpr std::size_t bytes = CaseMemory::count * sizeof(int);
  MUST(cudaMalloc(&memory, bytes));
  if (content) MUST(cudaMemcpy(memory, content->data(), bytes, cudaMemcpyHostToDevice));
  return static_cast<int*>(memory);
}

void run(const KernelCase& tried, bool out_is_elsewhere) {
  std::vector<int> numbers(CaseMemory::count);
  std::iota(numbers.begin(), numbers.end(), 0);
  const std::vector<int> zeros(CaseMemory::count);
  void* pinned = nullptr;
  MUST(cudaMallocHost(&pinned, CaseMemory::count * sizeof(int)));
  std::copy(numbers.begin(), numbers.end(), static_cast<int*>(pinned));
  if (out_is_elsewhere) MUST(cudaSetDevice(1));
  int* const out = memory_with(&zeros);
  MUST(cudaSetDevice(0));
  const CaseMemory memory{.full = memory_with(&numbers),
                          .out = out,
                          .empty = memory_with(nullptr),
                          .freed = memory_with(&numbers),
                          .pinned = static_cast<int*>(pinned),
                          .host = numbers.data()};
  MUST(cudaFree(memory.freed));
  MUST(tried.launch(memory));
  MUST(cudaDeviceSynchronize());
}

/// With two devices the result is the other's memory.
Outcome outcome(const KernelCase& tried, unsigned seed, const char* devices = "1") {
  return outcome_of([&] { run(tried, devices[0] == '2'); },
                    {{"CUSIM_SEED", std::to_string(seed)}, {"CUSIM_DEVICES", devices}});
}

}  // namespace

TEST_CASE("a wrong kernel ends the process with a message that names kernel and thread") {
  for (const KernelCase& tried : kernel_cases()) {
    if (!tried.message) continue;
    for (const unsigned seed : {1u, 2u, 3u}) {
      const Outcome result = outcome(tried, seed);
      INFO(tried.name << ", seed " << seed << ": " << result.said);
      CHECK(result.code == found_code);
      CHECK_THAT(result.said, Catch::Contains(tried.message));
      CHECK_THAT(result.said, Catch::StartsWith("cusim: rank 0: kernel "));
      CHECK_THAT(result.said, Catch::Contains(": block (") && Catch::Contains(") thread ("));
    }
  }
}

TEST_CASE("a kernel may not touch the memory of another GPU") {
  const KernelCase* const copy = &kernel_cases()[0];
  const Outcome result = outcome(*copy, 1, "2");
  CHECK(result.code == found_code);
  CHECK_THAT(result.said, Catch::Contains("memory of device 1; the kernel runs on device 0"));
}

TEST_CASE("a right kernel passes, whatever the seed") {
  for (const KernelCase& tried : kernel_cases()) {
    if (tried.message) continue;
    for (unsigned seed = 1; seed <= seeds(10); ++seed) {
      const Outcome result = outcome(tried, seed);
      INFO(tried.name << ", seed " << seed << ": " << result.said);
      REQUIRE(result.code == 0);
    }
  }
}

namespace {

/// Kernels in two streams read memory.full. Returns the second.
cudaStream_t read_in_two_streams(const CaseMemory& memory) {
  cudaStream_t first = nullptr;
  cudaStream_t second = nullptr;
  for (cudaStream_t* const stream : {&first, &second}) MUST(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  MUST(launch_copy(memory.full, memory.out, first));
  MUST(launch_copy(memory.full, memory.empty, second));
  return second;
}

}  // namespace

TEST_CASE("a write comes after the reads by the kernels of all streams") {
  constexpr const char* message = "without being ordered after";
  const KernelCase cases[] = {
      {"a kernel writes",
       [](const CaseMemory& memory) {
         cudaStream_t const second = read_in_two_streams(memory);
         return launch_copy(memory.pinned, memory.full, second);
       },
       message},
      {"a memset writes",
       [](const CaseMemory& memory) {
         cudaStream_t const second = read_in_two_streams(memory);
         return cudaMemsetAsync(memory.full, 0, CaseMemory::count * sizeof(int), second);
       },
       message},
  };
  for (const KernelCase& tried : cases) {
    for (unsigned seed = 1; seed <= 12; ++seed) {
      const Outcome result = outcome(tried, seed);
      INFO(tried.name << ", seed " << seed << ": " << result.said);
      CHECK(result.code == found_code);
      CHECK_THAT(result.said, Catch::Contains(tried.message));
    }
  }
}

// The last one: the forks before must come from a process that has not called CUDA.
TEST_CASE("a launch that no GPU takes is refused") {
  const dim3 one{1};
  CHECK(launch_empty(one, one) == cudaSuccess);
  CHECK(launch_empty(one, dim3{32, 32}) == cudaSuccess);
  CHECK(launch_empty(dim3{1, 65535}, one) == cudaSuccess);
  for (const dim3 grid : {dim3{0}, dim3{1, 0}, dim3{1, 65536}, dim3{1, 1, 65536}})
    CHECK(launch_empty(grid, one) == cudaErrorInvalidConfiguration);
  for (const dim3 block : {dim3{0}, dim3{1025}, dim3{32, 33}, dim3{1, 1, 65}, dim3{1, 1, 0}}) {
    CHECK(launch_empty(one, block) == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  }
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}
