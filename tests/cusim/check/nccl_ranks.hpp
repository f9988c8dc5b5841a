// Processes as the ranks of a communicator of cusim's NCCL, for a test case: each runs the case's body and leaves with
// a code. Nothing of cusim may be used in the process that forks them, because settings are read once.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.hpp"

namespace cusim::check {

using test::Environment;
using test::found_code;

constexpr int killed_code = 1000;   ///< by a signal
constexpr int timeout_code = 2000;  ///< by the limit of the test

/// What ended a rank, and what it wrote to standard error.
struct End {
  int code = 0;
  std::string text;
};

/// One rank in its own process.
class Rank {
 public:
  struct Shared {
    std::atomic<bool> has_id{false};
    ncclUniqueId id;
    std::atomic<int> arrived[16] = {};
  };

  Rank(int rank, int size, Shared* shared) : rank{rank}, size{size}, shared_{shared} {}

  const int rank;
  const int size;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  int times_in_progress = 0;

  /// Ends the process if it does not hold.
  void require(bool holds, const std::string& what) const {
    if (holds) return;
    std::fprintf(stderr, "rank %d: not so: %s\n", rank, what.c_str());
    std::_Exit(1);
  }
  void require(ncclResult_t result, const std::string& what) const {
    require(result == ncclSuccess, what + ": " + ncclGetErrorString(result) + ", " + ncclGetLastError(comm));
  }
  void require(cudaError_t result, const std::string& what) const {
    require(result == cudaSuccess, what + ": error " + std::to_string(result));
  }

  /// Blocks until all ranks have come to the point of this number.
  void meet(int point) const {
    ++shared_->arrived[point];
    while (shared_->arrived[point] < size) std::this_thread::sleep_for(std::chrono::microseconds{200});
  }

  const ncclUniqueId& id() const {
    if (rank == 0) {
      require(ncclGetUniqueId(&shared_->id), "ncclGetUniqueId");
      shared_->has_id = true;
    }
    while (!shared_->has_id) std::this_thread::sleep_for(std::chrono::microseconds{200});
    return shared_->id;
  }

  /// Waits until a call that may be in progress is done.
  ncclResult_t settled(ncclResult_t result) {
    if (result == ncclInProgress) ++times_in_progress;
    while (result == ncclInProgress) {
      std::this_thread::sleep_for(std::chrono::microseconds{100});
      const ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
      if (asked != ncclSuccess) return asked;
    }
    return result;
  }

  ncclResult_t init(int blocking) {
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    return settled(ncclCommInitRankConfig(&comm, size, id(), rank, &config));
  }
  void start(int blocking = 1) { require(init(blocking), "ncclCommInitRankConfig"); }
  void finish() {
    require(settled(ncclCommFinalize(comm)), "ncclCommFinalize");
    require(ncclCommDestroy(comm), "ncclCommDestroy");
  }
  void call(ncclResult_t result) { require(settled(result), "a call"); }
  void wait() const { require(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

  /// Whether the stream is done within the time. Asks, as a program does that must not hang.
  bool is_done_within(double seconds) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>{seconds};
    while (std::chrono::steady_clock::now() < end) {
      if (cudaStreamQuery(stream) == cudaSuccess) return true;
      std::this_thread::sleep_for(std::chrono::microseconds{200});
    }
    return false;
  }

  template <class T>
  T* on_gpu(const std::vector<T>& numbers) const {
    void* made = nullptr;
    require(cudaMalloc(&made, numbers.size() * sizeof(T)), "cudaMalloc");
    require(cudaMemcpy(made, numbers.data(), numbers.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    // A copy from pageable memory returns before its end, and `stream` does not wait for it.
    require(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    return static_cast<T*>(made);
  }
  template <class T>
  std::vector<T> on_host(const T* numbers, std::size_t count) const {
    std::vector<T> made(count);
    require(cudaMemcpy(made.data(), numbers, count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return made;
  }

 private:
  Shared* shared_;
};

inline std::string read_all(int fd) {
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(fd, part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(got));
  return text;
}

inline int code_of(pid_t process, std::chrono::steady_clock::time_point end) {
  int status = 0;
  while (::waitpid(process, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(process, SIGKILL);
      ::waitpid(process, &status, 0);
      return timeout_code;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : killed_code;
}

/// Runs `body` as each of the ranks; each has a GPU of its own, unless the environment says otherwise.
inline std::vector<End> run_ranks(int size, const Environment& environment, const std::function<void(Rank&)>& body) {
  void* const page = ::mmap(nullptr, sizeof(Rank::Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const shared = new (page) Rank::Shared;
  std::vector<pid_t> processes;
  std::vector<std::FILE*> texts;
  std::fflush(nullptr);
  for (int rank = 0; rank < size; ++rank) {
    texts.push_back(std::tmpfile());
    const pid_t process = ::fork();
    if (process == 0) {
      ::dup2(::fileno(texts.back()), STDERR_FILENO);
      ::setenv("CUSIM_RANK", std::to_string(rank).c_str(), 1);
      ::setenv("CUSIM_DEVICES", "4", 1);
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      Rank me{rank, size, shared};
      if (!environment.contains("CUSIM_DEVICES")) me.require(cudaSetDevice(rank), "cudaSetDevice");
      body(me);
      std::_Exit(0);
    }
    processes.push_back(process);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{15};
  std::vector<End> ends;
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const int code = code_of(processes[rank], end);
    ::lseek(::fileno(texts[rank]), 0, SEEK_SET);
    ends.push_back({code, read_all(::fileno(texts[rank]))});
    std::fclose(texts[rank]);
  }
  ::munmap(page, sizeof(Rank::Shared));
  return ends;
}

/// A sum of all ranks, in place.
inline ncclResult_t all_reduce(Rank& me, int* data, std::size_t count = 4) {
  return ncclAllReduce(data, data, count, ncclInt32, ncclSum, me.comm, me.stream);
}

/// The texts of all ranks that did not end well; empty where all did.
inline std::string complaints(const std::vector<End>& ends) {
  std::string all;
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    if (ends[rank].code != 0)
      all += "rank " + std::to_string(rank) + " ended with " + std::to_string(ends[rank].code) + ": " + ends[rank].text;
  return all;
}

}  // namespace cusim::check
