// That cusim finds what is wrong in a kernel, and nothing in a right one.
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel_cases.hpp"

using namespace cusim::test;

namespace {

void require(cudaError_t result) {
  if (result != cudaSuccess) std::_Exit(3);
}

int* device_ints(const std::vector<int>* content) {
  void* memory = nullptr;
  constexpr std::size_t bytes = CaseMemory::count * sizeof(int);
  require(cudaMalloc(&memory, bytes));
  if (content) require(cudaMemcpy(memory, content->data(), bytes, cudaMemcpyHostToDevice));
  return static_cast<int*>(memory);
}

/// In a process of its own: the settings are read once.
void run(const KernelCase& tried, unsigned seed, bool out_is_elsewhere) {
  setenv("CUSIM_SEED", std::to_string(seed).c_str(), 1);
  std::vector<int> numbers(CaseMemory::count);
  std::iota(numbers.begin(), numbers.end(), 0);
  const std::vector<int> zeros(CaseMemory::count);
  void* pinned = nullptr;
  require(cudaMallocHost(&pinned, CaseMemory::count * sizeof(int)));
  std::copy(numbers.begin(), numbers.end(), static_cast<int*>(pinned));
  if (out_is_elsewhere) require(cudaSetDevice(1));
  int* const out = device_ints(&zeros);
  require(cudaSetDevice(0));
  const CaseMemory memory{.full = device_ints(&numbers),
                          .out = out,
                          .empty = device_ints(nullptr),
                          .freed = device_ints(&numbers),
                          .pinned = static_cast<int*>(pinned),
                          .host = numbers.data()};
  require(cudaFree(memory.freed));
  require(tried.launch(memory));
  require(cudaDeviceSynchronize());
}

struct Outcome {
  int status;
  std::string said;
};

/// With two devices the result is the other's memory.
Outcome outcome(const KernelCase& tried, unsigned seed, const char* devices = "1") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    for (const int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) std::signal(number, SIG_DFL);
    setenv("CUSIM_DEVICES", devices, 1);
    run(tried, seed, devices[0] == '2');
    std::_Exit(0);
  }
  close(ends[1]);
  std::string said;
  char part[512];
  for (ssize_t got = 0; (got = read(ends[0], part, sizeof part)) > 0;) said.append(part, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), said};
}

}  // namespace

TEST_CASE("a wrong kernel ends the process with a message that names kernel and thread") {
  for (const KernelCase& tried : kernel_cases()) {
    if (!tried.message) continue;
    for (const unsigned seed : {1u, 2u, 3u}) {
      const Outcome result = outcome(tried, seed);
      INFO(tried.name << ", seed " << seed << ": " << result.said);
      CHECK(result.status == 86);
      CHECK_THAT(result.said, Catch::Contains(tried.message));
      CHECK_THAT(result.said, Catch::StartsWith("cusim: rank 0: kernel "));
      CHECK_THAT(result.said, Catch::Contains(": block (") && Catch::Contains(") thread ("));
    }
  }
}

TEST_CASE("a kernel may not touch the memory of another GPU") {
  const KernelCase* const copy = &kernel_cases()[0];
  const Outcome result = outcome(*copy, 1, "2");
  CHECK(result.status == 86);
  CHECK_THAT(result.said, Catch::Contains("memory of device 1; the kernel runs on device 0"));
}

TEST_CASE("a right kernel passes, whatever the seed") {
  for (const KernelCase& tried : kernel_cases()) {
    if (tried.message) continue;
    for (unsigned seed = 1; seed <= 50; ++seed) {
      const Outcome result = outcome(tried, seed);
      INFO(tried.name << ", seed " << seed << ": " << result.said);
      REQUIRE(result.status == 0);
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
