// Messages between two ranks, apart from those of groups.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <mpi.h>

#include "python/packed.hpp"

namespace lockstep::python {

/// A communicator of its own, and the one thread that uses it. Ranks are those of the job. A rank that is gone is the
/// watchdog's: messages to it are lost without a word.
class Desk {
 public:
  /// What a message is about, and so whose it is.
  enum class About : std::uint8_t { store, store_answer, mail };

  /// Called on the desk's thread; must not block.
  using Receiver = std::function<void(int from, Bytes message)>;
  using Post = std::function<void()>;
  /// What is done once MPI has moved something; with its failure, if it has one.
  using Then = std::function<void(const std::exception_ptr& failure)>;

  /// COLL over the job, blocking.
  Desk();
  Desk(const Desk&) = delete;

  // LOCAL. Before `open`, with which messages begin to come.
  void set_receiver(About about, Receiver receiver) {
    receivers_[static_cast<std::size_t>(about)] = std::move(receiver);
  }
  void open();

  /// LOCAL. No message comes or goes afterwards; what has not left by then is lost.
  void close();

  int rank() const { return rank_; }

  /// LOCAL, never blocks, from any thread. `post` runs on the desk's thread.
  void post(Post post);

  // On the desk's thread. None of them blocks.

  void send(int to, About about, Bytes message, Then then = {});

  /// The memory must stay alive and untouched until `then`. Between two ranks, memory comes in the order in which it is
  /// sent.
  void send_memory(int to, std::span<const std::byte> memory, Then then);
  void receive_memory(int from, std::span<std::byte> memory, Then then);

 private:
  struct Moving {
    std::vector<MPI_Request> requests = {};
    Bytes kept = {};
    Then then = {};
    std::exception_ptr failure = {};  ///< the first

    /// Whether this call of MPI did. Keeps its failure.
    bool succeeds(int code, const char* call);
  };

  void go_on();
  bool do_posted();
  bool receive();
  bool end_moved();
  template <class Start>
  void move(std::size_t bytes, Then then, const char* call, const Start& start);

  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  std::array<Receiver, 3> receivers_;
  std::list<Moving> moving_;  ///< of the desk's thread

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<Post> posts_;   ///< under `mutex_`
  bool is_closing_ = false;  ///< under `mutex_`
  std::thread thread_;
};

}  // namespace lockstep::python
