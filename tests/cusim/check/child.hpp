// Programs that are checked run in processes of their own: cusim's settings are read once, and what it finds ends the
// process.
#pragma once

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include <catch2/catch.hpp>
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cusim::test {

using Environment = std::map<std::string, std::string>;

constexpr int found_code = 86;  ///< of a process that cusim ends

/// How many seeds to try: CUSIM_CHECK_SEEDS, or `usual`.
inline unsigned seeds(unsigned usual) {
  const char* const asked = std::getenv("CUSIM_CHECK_SEEDS");
  return asked ? static_cast<unsigned>(std::strtoul(asked, nullptr, 10)) : usual;
}

/// Ends the process with code 1 if something that was expected is not so.
inline void expect(bool is_so, const char* what, int line) {
  if (is_so) return;
  std::fprintf(stderr, "line %d: not so: %s\n", line, what);
  _exit(1);
}
#define EXPECT(...) cusim::test::expect((__VA_ARGS__), #__VA_ARGS__, __LINE__)

inline void succeed(cudaError_t result, const char* what, int line) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "line %d: %s: %s\n", line, what, cudaGetErrorName(result));
  _exit(1);
}
#define MUST(...) cusim::test::succeed((__VA_ARGS__), #__VA_ARGS__, __LINE__)

struct Outcome {
  int code = 0;      ///< that it returned; -1 for a signal
  std::string said;  ///< to standard error
};

inline Outcome outcome_of(const std::function<void()>& program, const Environment& environment = {}) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) std::signal(signal, SIG_DFL);  // Catch2's would report
    setenv("CUSIM_PATIENCE_MS", "-1", 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    alarm(60);  // of a busy machine
    try {
      program();
    } catch (...) {
      std::fputs("an exception left the program\n", stderr);
      _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  Outcome outcome;
  char part[4096];
  for (ssize_t got = 0; (got = read(ends[0], part, sizeof part)) > 0;)
    outcome.said.append(part, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

inline void passes(const std::function<void()>& program, const Environment& environment = {}) {
  const Outcome outcome = outcome_of(program, environment);
  INFO(outcome.said);
  CHECK(outcome.code == 0);
}

/// In each order of work.
inline void passes_in_any_order(const std::function<void()>& program, Environment environment = {}) {
  for (const char* order : {"late", "eager", "thread"}) {
    INFO(order);
    environment["CUSIM_ORDER"] = order;
    passes(program, environment);
  }
}

/// That cusim ends the program with a message that has `part`.
inline void is_found(const std::string& part, const std::function<void()>& program,
                     const Environment& environment = {}) {
  const Outcome outcome = outcome_of(program, environment);
  INFO(outcome.said);
  CHECK(outcome.code == found_code);
  CHECK(outcome.said.find(part) != std::string::npos);
}

// --- What programs of tests use ---

inline cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  MUST(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

inline cudaEvent_t make_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  MUST(cudaEventCreateWithFlags(&event, flags));
  return event;
}

inline int* device_ints(std::size_t count) {
  void* memory = nullptr;
  MUST(cudaMalloc(&memory, count * sizeof(int)));
  return static_cast<int*>(memory);
}

inline int* device_ints(std::size_t count, cudaStream_t stream) {
  void* memory = nullptr;
  MUST(cudaMallocAsync(&memory, count * sizeof(int), stream));
  return static_cast<int*>(memory);
}

inline int* pinned_ints(std::size_t count) {
  void* memory = nullptr;
  MUST(cudaMallocHost(&memory, count * sizeof(int)));
  return static_cast<int*>(memory);
}

/// Enqueues work that adds one to a number of the host.
inline void count_in(cudaStream_t stream, int& number) {
  MUST(cudaLaunchHostFunc(
      stream, [](void* at) { ++*static_cast<int*>(at); }, &number));
}

inline void copy_ints(int* to, const int* from, std::size_t count, cudaStream_t stream) {
  MUST(cudaMemcpyAsync(to, from, count * sizeof(int), cudaMemcpyDefault, stream));
}

inline void set_ints(int* to, std::size_t count, cudaStream_t stream) {
  MUST(cudaMemsetAsync(to, 0, count * sizeof(int), stream));
}

/// The second stream's later work comes after the first's earlier.
inline void order(cudaStream_t first, cudaStream_t second) {
  const cudaEvent_t event = make_event();
  MUST(cudaEventRecord(event, first));
  MUST(cudaStreamWaitEvent(second, event, 0));
  MUST(cudaEventDestroy(event));
}

}  // namespace cusim::test
