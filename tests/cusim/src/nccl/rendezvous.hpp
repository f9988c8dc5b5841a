// How the ranks of a new communicator find each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nccl.h>

#include "wire.hpp"

namespace cusim {

/// Fills `id` with a name that nobody else has.
void make_unique_id(ncclUniqueId& id);

/// One rank's way to all others: each listens in the abstract namespace under a name from the id, so that nothing is
/// left behind by a process that is killed, and connects to the ranks below it. Nothing in it blocks.
class Rendezvous {
 public:
  /// Ends the process (`found`) where the id is not one, or has served this rank before.
  Rendezvous(const ncclUniqueId& id, int size, int rank, int device);

  /// Goes on as far as it can. ncclInProgress until all ranks are here and agree, then ncclSuccess; ncclInvalidUsage
  /// where two ranks have the same GPU; ncclRemoteError where one has gone away. `problem` has the words for an error.
  ncclResult_t advance();
  const std::string& problem() const { return problem_; }

  /// The connections, in the order of the ranks; this rank's own is closed.
  std::vector<Socket> take() { return std::move(sockets_); }

 private:
  /// What a rank tells of itself.
  struct Hello {
    std::int32_t size = 0;
    std::int32_t rank = 0;
    std::int32_t device = 0;
    char host[116] = {};
  };

  /// One that has connected, and has not told yet which rank it is.
  struct Stranger {
    Socket socket;
    Hello hello;
    std::size_t received = 0;
  };

  std::string name_of(int rank) const;
  void listen();
  void connect(int peer);
  void accept();
  bool hear(Stranger& stranger);
  bool hear_all();
  ncclResult_t verdict();

  std::string id_;
  Hello mine_;
  Socket listener_;
  std::vector<Socket> sockets_;
  std::vector<Hello> hellos_;
  std::vector<bool> known_;
  std::vector<Stranger> strangers_;
  std::vector<Stranger> below_;  ///< the ranks below this one, which it connects to
  std::string problem_;
};

}  // namespace cusim
