// Exchanges of any length between the ranks of a group, which travel while the ranks do something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/comm/communicator.hpp"
#include "core/comm/messenger.hpp"

namespace lockstep {

/// One lane of a messenger. Each exchange is cut into chunks, which leave in the order in which the exchanges were
/// started, a few at a time, so that a long one neither fills the memory of the network nor holds thousands of
/// messages. Not thread-safe.
class ExchangeQueue {
 public:
  /// Of all parcels of a rank together, the bytes that are under way at a time.
  static constexpr std::int64_t bytes_under_way = 4 << 20;

  /// What travels at once.
  struct Parcels {
    std::vector<Parcel> of_ranks;  ///< `of_ranks[r]` is between this rank and rank r, as for Messenger::start
    std::size_t longest = 0;       ///< of any parcel of any rank, in bytes, the same on all of them
  };

  class Exchange {
   public:
    bool is_done() const { return left_ == 0; }

   private:
    friend class ExchangeQueue;
    std::function<std::vector<Parcels>()> rest_;
    std::int64_t left_ = 0;  ///< chunks, and the rest
  };

  /// `messenger` must outlive this object, and belongs to a group of `ranks`.
  ExchangeQueue(Messenger& messenger, Messenger::Lane lane, int ranks);

  /// COLL, but returns at once. The memory of parcels must stay alive until it is done, and that of what is sent
  /// unchanged. If there is a `rest`, it is called once the parcels have come, and says what travels then; later
  /// exchanges wait for that.
  std::shared_ptr<const Exchange> start(Parcels parcels, std::function<std::vector<Parcels>()> rest = {});

  /// LOCAL, never blocks. Whether there was something to do.
  bool advance();

 private:
  struct Chunk {
    std::shared_ptr<Exchange> exchange;
    std::shared_ptr<const std::vector<Parcel>> parcels = {};  ///< null for the exchange's rest
    std::size_t first = 0;                                    ///< byte of each parcel
    std::optional<Work> work = {};
  };

  std::vector<Chunk> cut(const std::shared_ptr<Exchange>& exchange, Parcels parcels) const;
  void send_more();
  void send(Chunk chunk);
  void find_rest();

  static constexpr std::size_t chunks_under_way = 2;

  Messenger& messenger_;
  Messenger::Lane lane_;
  std::size_t chunk_bytes_;  ///< of each parcel
  std::deque<Chunk> waiting_, under_way_;
};

}  // namespace lockstep
