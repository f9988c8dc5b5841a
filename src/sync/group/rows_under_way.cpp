#include "sync/group/rows_under_way.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "core/base/element_type.hpp"

namespace lockstep::detail {
namespace {

using Parcels = ExchangeQueue::Parcels;

class Rows {
 public:
  Rows(std::vector<Tensor*> tensors, int rank, int ranks)
      : tensors_{std::move(tensors)}, rank_{static_cast<std::size_t>(rank)}, counts_(static_cast<std::size_t>(ranks)) {
    counts_[rank_] = tensors_.front()->shape()[0];
  }

  Parcels counts() {
    Parcels parcels{{}, sizeof(std::int64_t)};
    for (std::int64_t& count : counts_)
      parcels.of_ranks.push_back(
          {std::as_bytes(std::span{&counts_[rank_], 1}), std::as_writable_bytes(std::span{&count, 1})});
    return parcels;
  }

  // Once all have said how many they have.

  std::vector<Parcels> gather() {
    const std::int64_t all = std::reduce(counts_.begin(), counts_.end());
    std::vector<Parcels> parcels;
    for (std::size_t i = 0; all > 0 && i < tensors_.size(); ++i) parcels.push_back(gather(*tensors_[i], all));
    return parcels;
  }

  std::vector<Parcels> send(std::size_t from, std::size_t to) {
    const Tensor& mine = *tensors_.front();
    Parcels parcels{std::vector<Parcel>(counts_.size()), bytes_of(mine, counts_[from])};
    if (from != to && rank_ == from) parcels.of_ranks[to].sent = bytes(mine);
    if (from != to && rank_ == to) parcels.of_ranks[from].received = bytes(make(mine, counts_[from]));
    return {std::move(parcels)};
  }

  void put_down() {
    for (std::size_t i = 0; i < made_.size(); ++i) *tensors_[i] = std::move(made_[i]);
  }

 private:
  static std::span<std::byte> bytes(const Tensor& tensor) { return {tensor.view().data(), tensor.view().bytes()}; }

  Parcels gather(const Tensor& mine, std::int64_t all) {
    std::span<std::byte> rest = bytes(make(mine, all));
    Parcels parcels;
    for (const std::int64_t count : counts_) {
      const std::size_t length = bytes_of(mine, count);
      parcels.of_ranks.push_back({bytes(mine), rest.first(length)});
      parcels.longest = std::max(parcels.longest, length);
      rest = rest.subspan(length);
    }
    const Parcel& own = parcels.of_ranks[rank_];
    std::ranges::copy(own.sent, own.received.begin());
    return parcels;
  }

  const Tensor& make(const Tensor& like, std::int64_t rows) {
    Shape shape = like.shape();
    shape[0] = rows;
    return made_.emplace_back(Tensor::uninitialised(like.dtype(), shape));
  }

  /// What so many rows take.
  static std::size_t bytes_of(const Tensor& tensor, std::int64_t rows) {
    const Shape& shape = tensor.shape();
    return static_cast<std::size_t>(std::accumulate(shape.begin() + 1, shape.end(), rows, std::multiplies{})) *
           size_of(tensor.dtype());
  }

  std::vector<Tensor*> tensors_;
  std::size_t rank_;
  std::vector<std::int64_t> counts_;  ///< by rank
  std::vector<Tensor> made_;
};

/// Rows of which each rank has some for each other.
class SwappedRows {
 public:
  SwappedRows(Tensor& tensor, std::span<std::int64_t> counts, int rank, int ranks)
      : tensor_{tensor},
        counts_{counts},
        rank_{static_cast<std::size_t>(rank)},
        said_(static_cast<std::size_t>(ranks)) {
    const std::int64_t most = *std::ranges::max_element(counts);
    for (const std::int64_t count : counts) saying_.push_back({count, most});
  }

  Parcels counts() {
    Parcels parcels{{}, sizeof(Numbers)};
    for (std::size_t other = 0; other < said_.size(); ++other)
      parcels.of_ranks.push_back(
          {std::as_bytes(std::span{&saying_[other], 1}), std::as_writable_bytes(std::span{&said_[other], 1})});
    said_[rank_] = saying_[rank_];
    return parcels;
  }

  /// Once all have said how many they have for this rank, and at most for any.
  std::vector<Parcels> swap() {
    Shape shape = tensor_.shape();
    shape[0] = 0;
    std::int64_t most = 0;
    for (const Numbers& numbers : said_) {
      shape[0] += numbers.for_you;
      most = std::max(most, numbers.most);
    }
    received_ = Tensor::uninitialised(tensor_.dtype(), shape);
    const auto bytes_of = [&](std::int64_t rows) {
      return static_cast<std::size_t>(std::accumulate(shape.begin() + 1, shape.end(), rows, std::multiplies{})) *
             size_of(tensor_.dtype());
    };
    std::span<const std::byte> sent{tensor_.view().data(), tensor_.view().bytes()};
    std::span<std::byte> rest{received_.view().data(), received_.view().bytes()};
    Parcels parcels{{}, bytes_of(most)};
    for (std::size_t other = 0; other < said_.size(); ++other) {
      const std::size_t leaving = bytes_of(saying_[other].for_you), coming = bytes_of(said_[other].for_you);
      parcels.of_ranks.push_back({sent.first(leaving), rest.first(coming)});
      sent = sent.subspan(leaving);
      rest = rest.subspan(coming);
    }
    const Parcel& own = parcels.of_ranks[rank_];
    std::ranges::copy(own.sent, own.received.begin());
    if (most == 0) return {};
    return {std::move(parcels)};
  }

  void put_down() {
    tensor_ = std::move(received_);
    std::ranges::transform(said_, counts_.begin(), &Numbers::for_you);
  }

 private:
  struct Numbers {
    std::int64_t for_you;
    std::int64_t most;  ///< for any rank
  };

  Tensor& tensor_;
  std::span<std::int64_t> counts_;
  std::size_t rank_;
  std::vector<Numbers> saying_, said_;
  Tensor received_;
};

/// `move(rows)` says what travels once the numbers have.
template <class Rows, class Move>
std::function<bool()> start(ExchangeQueue& exchanges, const std::shared_ptr<Rows>& rows, Move move) {
  return [rows, exchange = exchanges.start(rows->counts(), [rows, move] { return move(*rows); })] {
    if (!exchange->is_done()) return false;
    rows->put_down();
    return true;
  };
}

}  // namespace

std::function<bool()> gather_rows(ExchangeQueue& exchanges, std::vector<Tensor*> tensors, int rank, int ranks) {
  return start(exchanges, std::make_shared<Rows>(std::move(tensors), rank, ranks),
               [](Rows& rows) { return rows.gather(); });
}

std::function<bool()> send_rows(ExchangeQueue& exchanges, Tensor& tensor, int rank, int ranks, int from, int to) {
  return start(exchanges, std::make_shared<Rows>(std::vector{&tensor}, rank, ranks), [from, to](Rows& rows) {
    return rows.send(static_cast<std::size_t>(from), static_cast<std::size_t>(to));
  });
}

std::function<bool()> swap_rows(ExchangeQueue& exchanges, Tensor& tensor, std::span<std::int64_t> counts, int rank,
                                int ranks) {
  return start(exchanges, std::make_shared<SwappedRows>(tensor, counts, rank, ranks),
               [](SwappedRows& rows) { return rows.swap(); });
}

}  // namespace lockstep::detail
