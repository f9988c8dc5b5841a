// Ranks of one node that are threads of one process, each with a mapping of its own of what they share.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/comm/shm/node_memory.hpp"

namespace lockstep::test {

/// Calls `body(memory)` on `ranks` ranks at once, and throws what one of them threw once all have ended. A rank that
/// throws must be in no exchange any more. No assertions in `body`: the test framework's are for one thread.
inline void on_node(int ranks, const std::function<void(NodeMemory&)>& body,
                    SharedMemory (*create)(std::size_t) = SharedMemory::create) {
  SharedMemory slots = SharedMemory::create(NodeMemory::bytes_for(ranks));
  std::vector<SharedMemory> opened;
  for (int rank = 0; rank < ranks; ++rank)
    opened.push_back(SharedMemory::open(slots.handle(), NodeMemory::bytes_for(ranks)));
  slots.take_over();
  std::vector<std::thread> threads;
  std::exception_ptr failure;
  std::mutex mutex;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        NodeMemory memory{std::move(opened[static_cast<std::size_t>(rank)]), rank, ranks, create};
        body(memory);
      } catch (...) {
        const std::lock_guard lock{mutex};
        failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep::test
