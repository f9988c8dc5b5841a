// Requests of groups of every kind, for programs that draw them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/values.hpp>
#include <lockstep/sync/group/group.hpp>

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
    swap_rows,
    barrier
  };
  static Kind drawn(std::mt19937_64& draw) {
    return static_cast<Kind>(draw() % (static_cast<std::uint64_t>(Kind::barrier) + 1));
  }

  /// Submits one of `kind`, with `count` values in a block, which are where those of `stream` are.
  AnyRequest(Group& group, Kind kind, std::size_t count, Stream& stream = Stream::host())
      : stream_{stream}, rank_{group.rank()}, ranks_{group.size()}, count_{count}, request_{submit(group, kind)} {}
  AnyRequest(const AnyRequest&) = delete;

  bool test() { return request_.test(); }
  void wait() { request_.wait(); }

  /// Once it is done.
  bool is_right() const {
    if (slices_) return is_expected(slices_->values) && is_expected(slices_->indices);
    return !expected_ || is_expected(got_);
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

  template <class Value>
  Tensor tensor_of(const std::vector<Value>& values) const {
    return Tensor::copy_of(Tensor::from(values, {std::ssize(values)}).view(), stream_);
  }

  bool is_expected(const Tensor& tensor) const {
    if (tensor.device() != stream_.kind()) return false;
    if (tensor.dtype() == DType::i64) return tensor.to_vector<std::int64_t>() == *expected_;
    const std::vector<float> values = tensor.to_vector<float>();
    return Values(values.begin(), values.end()) == *expected_;
  }

  Group::Request submit(Group& group, Kind kind) {
    const int root = static_cast<int>(count_ % static_cast<std::size_t>(ranks_)), after = (root + 1) % ranks_;
    const bool is_root = rank_ == root;
    const std::size_t mine = static_cast<std::size_t>(rank_) * count_, all = static_cast<std::size_t>(ranks_) * count_;
    const auto own_block = [&](int from) { return of(from, count_, mine); };
    const auto first_block = [&](int from) { return of(from, count_); };
    const auto rows_of = [&](int from) {
      return of(from, from == after ? 0 : count_ % 100 + static_cast<std::size_t>(from));
    };
    const bool to_each = kind == Kind::all_to_all;
    const bool sends_all = to_each || kind == Kind::reduce_scatter || kind == Kind::scatter;
    const bool gets_all = to_each || kind == Kind::all_gather || kind == Kind::gather;
    sent_ = tensor_of(of(rank_, sends_all ? all : count_));
    got_ = tensor_of(gets_all ? Values(all, -1) : of(rank_, count_));
    switch (kind) {
      case Kind::all_reduce: expected_ = sum(); return group.submit_all_reduce(got_.view());
      case Kind::reduce:
        if (is_root) expected_ = sum();
        return group.submit_reduce(got_.view(), root);
      case Kind::reduce_scatter: expected_ = sum(mine); return group.submit_reduce_scatter(sent_.view(), got_.view());
      case Kind::broadcast: expected_ = of(root, count_); return group.submit_broadcast(got_.view(), root);
      case Kind::all_gather: expected_ = all_of(first_block); return group.submit_all_gather(sent_.view(), got_.view());
      case Kind::gather:
        expected_ = is_root ? all_of(first_block) : Values(all, -1);
        return group.submit_gather(sent_.view(), got_.view(), root);
      case Kind::scatter: expected_ = own_block(root); return group.submit_scatter(sent_.view(), got_.view(), root);
      case Kind::all_to_all: expected_ = all_of(own_block); return group.submit_all_to_all(sent_.view(), got_.view());
      case Kind::send:
        expected_ = of(rank_ == after ? root : rank_, count_);
        return group.submit_send(got_.view(), root, after);
      case Kind::gather_rows:
        expected_ = all_of(rows_of);
        got_ = tensor_of(rows_of(rank_));
        return group.submit_all_gather(got_);
      case Kind::sum_slices:
        expected_ = all_of(rows_of);
        slices_ = {tensor_of(rows_of(rank_)), tensor_of(rows_of(rank_)), {value(ranks_, 0)}};
        return group.submit_all_reduce(*slices_);
      case Kind::sum_sent_as_f16:  // small enough for f16 to hold their sum
        got_ = tensor_of(std::vector(count_ + 1, static_cast<float>(rank_ + 1)));
        expected_ = Values(count_ + 1, ranks_ * (ranks_ + 1) / 2);
        return group.submit_all_reduce(got_.view(), {.wire = DType::f16});
      case Kind::sum_anywhere:
        expected_ = sum();
        if (is_root) return group.anywhere().submit_all_reduce(got_.view());
        return group.anywhere().submit_all_reduce(got_.view());  // at another place
      case Kind::send_rows:
        expected_ = rows_of(rank_ == after ? root : rank_);
        got_ = tensor_of(rows_of(rank_));
        return group.submit_send(got_, root, after);
      case Kind::swap_rows:
        // Rank r has r + 1 rows for rank 0, r + 2 for rank 1, and so on.
        expected_ = Values{};
        counts_.clear();
        for (int other = 0; other < ranks_; ++other) {
          counts_.push_back(rank_ + other + 1);
          expected_->insert(expected_->end(), static_cast<std::size_t>(other + rank_ + 1), value(other, 0));
        }
        got_ =
            tensor_of(Values(static_cast<std::size_t>(std::reduce(counts_.begin(), counts_.end())), value(rank_, 0)));
        return group.submit_all_to_all(got_, counts_);
      case Kind::barrier: break;
    }
    return group.submit_barrier();
  }

  Stream& stream_;
  int rank_, ranks_;
  std::size_t count_;
  Tensor sent_, got_;
  std::optional<Values> expected_;  ///< empty for unspecified values
  std::optional<IndexedSlices> slices_;
  Values counts_;
  Group::Request request_;  ///< the last, so that it is the first to go
};

}  // namespace lockstep::test
