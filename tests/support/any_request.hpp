// Requests of groups of every kind, for programs that draw them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <lockstep/group/group.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/values.hpp>

namespace lockstep::test {

/// A request and what must come of it. What a rank brings depends on its rank in the group alone, so each rank knows
/// what it must get.
class AnyRequest {
 public:
  enum class Kind : std::uint8_t {
    all_reduce,
    reduce,
    reduce_scatter,
    broadcast,
    all_gather,
    gather,
    scatter,
    all_to_all,
    send,
    gather_rows,
    sum_slices,
    sum_sent_as_f16,
    sum_anywhere,
    send_rows,
    barrier
  };
  static Kind drawn(std::mt19937_64& draw) {
    return static_cast<Kind>(draw() % (static_cast<std::uint64_t>(Kind::barrier) + 1));
  }

  /// Submits one of `kind`, with `count` values in a block.
  AnyRequest(Group& group, Kind kind, std::size_t count)
      : rank_{group.rank()}, ranks_{group.size()}, count_{count}, request_{submit(group, kind)} {}
  AnyRequest(const AnyRequest&) = delete;

  bool test() { return request_.test(); }
  void wait() { request_.wait(); }

  /// Once it is done.
  bool is_right() const {
    if (rows_) return rows_->to_vector<std::int64_t>() == expected_;
    if (slices_)
      return slices_->values.to_vector<std::int64_t>() == expected_ &&
             slices_->indices.to_vector<std::int64_t>() == expected_;
    if (!floats_.empty()) return Values(floats_.begin(), floats_.end()) == expected_;
    return !expected_ || got_ == *expected_;
  }

 private:
  using Values = std::vector<std::int64_t>;

  static std::int64_t value(int rank, std::size_t i) { return 1000 * (rank + 1) + static_cast<std::int64_t>(i % 997); }

  /// So many of a rank's.
  static Values of(int rank, std::size_t count, std::size_t first = 0) {
    Values values;
    for (std::size_t i = first; i < first + count; ++i) values.push_back(value(rank, i));
    return values;
  }

  /// All ranks' block.
  template <class Block>
  Values all_of(Block&& block) const {
    Values all;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Values values = block(rank);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  Values sum(std::size_t first = 0) const {
    Values values(count_);
    for (int rank = 0; rank < ranks_; ++rank)
      for (std::size_t i = 0; i < count_; ++i) values[i] += value(rank, first + i);
    return values;
  }

  static Tensor tensor_of(const Values& values) { return Tensor::from(values, {std::ssize(values)}); }

  Group::Request submit(Group& group, Kind kind) {
    const int root = static_cast<int>(count_ % static_cast<std::size_t>(ranks_)), after = (root + 1) % ranks_;
    const bool is_root = rank_ == root;
    const std::size_t mine = static_cast<std::size_t>(rank_) * count_, all = static_cast<std::size_t>(ranks_) * count_;
    const auto own_block = [&](int from) { return of(from, count_, mine); };
    const auto first_block = [&](int from) { return of(from, count_); };
    const auto rows_of = [&](int from) {
      return of(from, from == after ? 0 : count_ % 100 + static_cast<std::size_t>(from));
    };
    sent_ = got_ = of(rank_, count_);
    const bool to_each = kind == Kind::all_to_all;
    if (to_each || kind == Kind::reduce_scatter || kind == Kind::scatter) sent_ = of(rank_, all);
    if (to_each || kind == Kind::all_gather || kind == Kind::gather) got_.assign(all, -1);
    switch (kind) {
      case Kind::all_reduce: expected_ = sum(); return group.submit_all_reduce(std::span{got_});
      case Kind::reduce:
        if (is_root) expected_ = sum();
        return group.submit_reduce(std::span{got_}, root);
      case Kind::reduce_scatter:
        expected_ = sum(mine);
        return group.submit_reduce_scatter(std::span{sent_}, std::span{got_});
      case Kind::broadcast: expected_ = of(root, count_); return group.submit_broadcast(std::span{got_}, root);
      case Kind::all_gather:
        expected_ = all_of(first_block);
        return group.submit_all_gather(std::span{sent_}, std::span{got_});
      case Kind::gather:
        expected_ = is_root ? all_of(first_block) : Values(all, -1);
        return group.submit_gather(std::span{sent_}, std::span{got_}, root);
      case Kind::scatter:
        expected_ = own_block(root);
        return group.submit_scatter(std::span{sent_}, std::span{got_}, root);
      case Kind::all_to_all:
        expected_ = all_of(own_block);
        return group.submit_all_to_all(std::span{sent_}, std::span{got_});
      case Kind::send:
        expected_ = of(rank_ == after ? root : rank_, count_);
        return group.submit_send(std::span{got_}, root, after);
      case Kind::gather_rows:
        expected_ = all_of(rows_of);
        rows_ = tensor_of(rows_of(rank_));
        return group.submit_all_gather(*rows_);
      case Kind::sum_slices:
        expected_ = all_of(rows_of);
        slices_ = {tensor_of(rows_of(rank_)), tensor_of(rows_of(rank_)), {value(ranks_, 0)}};
        return group.submit_all_reduce(*slices_);
      case Kind::sum_sent_as_f16:  // small enough for f16 to hold their sum
        floats_.assign(count_ + 1, static_cast<float>(rank_ + 1));
        expected_ = Values(count_ + 1, ranks_ * (ranks_ + 1) / 2);
        return group.submit_all_reduce(std::span{floats_}, {.wire = DType::f16});
      case Kind::sum_anywhere:
        expected_ = sum();
        if (is_root) return group.anywhere().submit_all_reduce(std::span{got_});
        return group.anywhere().submit_all_reduce(std::span{got_});  // at another place
      case Kind::send_rows:
        expected_ = rows_of(rank_ == after ? root : rank_);
        rows_ = tensor_of(rows_of(rank_));
        return group.submit_send(*rows_, root, after);
      case Kind::barrier: break;
    }
    return group.submit_barrier();
  }

  int rank_, ranks_;
  std::size_t count_;
  Values sent_, got_;
  std::optional<Values> expected_;  ///< empty for unspecified values
  std::vector<float> floats_;
  std::optional<Tensor> rows_;
  std::optional<IndexedSlices> slices_;
  Group::Request request_;  ///< the last, so that it is the first to go
};

}  // namespace lockstep::test
