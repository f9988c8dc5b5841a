// Exchanges of any length between the ranks of a group, which travel while the ranks do something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/messenger.hpp"

namespace lockstep {

/// One lane of a messenger. Each exchange is cut into chunks, which leave in the order in which the exchanges were
/// started, a few at a time, so that a long one neither fills the memory of the network nor holds thousands of
/// messages. Not thread-safe.
class ExchangeQueue {
 public:
  /// Of all parcels of a rank together, the bytes that are under way at a time.
  static constexpr std::int64_t bytes_under_way = 4 << 20;

  class Exchange {
   public:
    bool is_done() const { return left_ == 0; }

   private:
    friend class ExchangeQueue;
    std::vector<Parcel> parcels_;
    std::int64_t left_ = 0;  ///< chunks
  };

  /// `messenger` must outlive this object, and belongs to a group of `ranks`.
  ExchangeQueue(Messenger& messenger, Messenger::Lane lane, int ranks);

  /// COLL, but returns at once. `parcels[r]` is between this rank and rank r, as for Messenger::start; `longest` is
  /// that of any parcel of any rank, in bytes, the same on all of them. The memory of parcels must stay alive until it
  /// is done, and that of what is sent unchanged.
  std::shared_ptr<const Exchange> start(std::vector<Parcel> parcels, std::int64_t longest);

  /// LOCAL, never blocks. Whether there was something to do.
  bool advance();

 private:
  struct Chunk {
    std::shared_ptr<Exchange> exchange;
    std::int64_t first;
    std::optional<Work> work = {};
  };

  void send_more();

  static constexpr std::size_t chunks_under_way = 2;

  Messenger& messenger_;
  Messenger::Lane lane_;
  std::int64_t chunk_bytes_;  ///< of each parcel
  std::deque<Chunk> waiting_, under_way_;
};

}  // namespace lockstep
