#include "core/comm/exchange_queue.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

template <class Byte>
std::span<Byte> part(std::span<Byte> whole, std::size_t first, std::size_t most) {
  const std::size_t begin = std::min(first, whole.size());
  return whole.subspan(begin, std::min(most, whole.size() - begin));
}

}  // namespace

ExchangeQueue::ExchangeQueue(Messenger& messenger, Messenger::Lane lane, int ranks)
    : messenger_{messenger},
      lane_{lane},
      chunk_bytes_{std::max(static_cast<std::size_t>(Messenger::piece_bytes),
                            bytes_under_way / chunks_under_way / static_cast<std::size_t>(std::max(1, ranks - 1)))} {}

auto ExchangeQueue::start(Parcels parcels, std::function<std::vector<Parcels>()> rest)
    -> std::shared_ptr<const Exchange> {
  const auto exchange = std::make_shared<Exchange>();
  std::ranges::move(cut(exchange, std::move(parcels)), std::back_inserter(waiting_));
  if (rest) {
    exchange->rest_ = std::move(rest);
    ++exchange->left_;
    waiting_.push_back({exchange});
  }
  send_more();
  return exchange;
}

auto ExchangeQueue::cut(const std::shared_ptr<Exchange>& exchange, Parcels parcels) const -> std::vector<Chunk> {
  const auto of_ranks = std::make_shared<const std::vector<Parcel>>(std::move(parcels.of_ranks));
  std::vector<Chunk> chunks;
  for (std::size_t first = 0; first < parcels.longest; first += chunk_bytes_)
    chunks.push_back({exchange, of_ranks, first});
  exchange->left_ += std::ssize(chunks);
  return chunks;
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
    if (!waiting_.front().parcels) {
      if (waiting_.front().exchange->left_ > 1) return;  // what says what the rest is has not come
      find_rest();
      continue;
    }
    send(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

/// That of the exchange at the front, where it takes the place that is kept for it.
void ExchangeQueue::find_rest() {
  const auto exchange = std::move(waiting_.front().exchange);
  waiting_.pop_front();
  std::vector<Chunk> rest;
  for (Parcels& parcels : std::exchange(exchange->rest_, nullptr)())
    std::ranges::move(cut(exchange, std::move(parcels)), std::back_inserter(rest));
  waiting_.insert(waiting_.begin(), std::move_iterator{rest.begin()}, std::move_iterator{rest.end()});
  --exchange->left_;
}

void ExchangeQueue::send(Chunk chunk) {
  std::vector<Parcel> parcels;
  for (const Parcel& parcel : *chunk.parcels)
    parcels.push_back({part(parcel.sent, chunk.first, chunk_bytes_), part(parcel.received, chunk.first, chunk_bytes_)});
  chunk.work = messenger_.start(parcels, lane_);
  under_way_.push_back(std::move(chunk));
}

}  // namespace lockstep
