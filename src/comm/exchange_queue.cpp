#include "comm/exchange_queue.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

template <class Byte>
std::span<Byte> part(std::span<Byte> whole, std::int64_t first, std::int64_t most) {
  const std::size_t begin = std::min(static_cast<std::size_t>(first), whole.size());
  return whole.subspan(begin, std::min(static_cast<std::size_t>(most), whole.size() - begin));
}

}  // namespace

ExchangeQueue::ExchangeQueue(Messenger& messenger, Messenger::Lane lane, int ranks)
    : messenger_{messenger},
      lane_{lane},
      chunk_bytes_{std::max(Messenger::piece_bytes,
                            bytes_under_way / static_cast<std::int64_t>(chunks_under_way) / std::max(1, ranks - 1))} {}

auto ExchangeQueue::start(std::vector<Parcel> parcels, std::int64_t longest) -> std::shared_ptr<const Exchange> {
  const auto exchange = std::make_shared<Exchange>();
  exchange->parcels_ = std::move(parcels);
  for (std::int64_t first = 0; first < longest; first += chunk_bytes_) {
    waiting_.push_back({exchange, first});
    ++exchange->left_;
  }
  send_more();
  return exchange;
}

bool ExchangeQueue::advance() {
  bool moved = false;
  while (!under_way_.empty() && under_way_.front().work->advance()) {
    under_way_.front().work->wait();
    --under_way_.front().exchange->left_;
    under_way_.pop_front();
    send_more();
    moved = true;
  }
  return moved;
}

void ExchangeQueue::send_more() {
  while (!waiting_.empty() && under_way_.size() < chunks_under_way) {
    Chunk chunk = std::move(waiting_.front());
    waiting_.pop_front();
    std::vector<Parcel> parcels;
    for (const Parcel& parcel : chunk.exchange->parcels_)
      parcels.push_back(
          {part(parcel.sent, chunk.first, chunk_bytes_), part(parcel.received, chunk.first, chunk_bytes_)});
    chunk.work = messenger_.start(parcels, lane_);
    under_way_.push_back(std::move(chunk));
  }
}

}  // namespace lockstep
