// Sums over shards whose ranks bring the sums of their shares, against the tree over all shards.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/base/philox.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "core/order/shares.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/slice_map.hpp"
#include "sync/reduce/subtrees.hpp"

namespace lockstep::test {

/// One rank's part in sums over `shards` shards of `count` elements of T, whose bits depend on the order.
template <class T>
class ShardSums {
 public:
  /// `reductions` must outlive it.
  ShardSums(Reductions& reductions, int rank, int ranks, int shards, std::int64_t count)
      : reductions_{reductions},
        shards_{shards},
        count_{count},
        rank_{rank},
        ranks_{ranks},
        own_{Shares{shards, ranks}.of(rank)} {}

  /// What each kind of sum gives: its name, and whether this rank has got the tree over all shards.
  std::vector<std::pair<std::string, bool>> results() {
    const Tensor expected = sum_of({0, shards_});
    const auto is_right = [&](const TensorView& sum, std::int64_t first = 0) {
      const std::size_t offset = static_cast<std::size_t>(first) * sizeof(T);
      return std::memcmp(sum.data(), expected.view().data() + offset, sum.bytes()) == 0;
    };
    const Reductions::OfShards of_shards{reductions_, shards_};
    std::vector<std::pair<std::string, bool>> results;

    const Tensor all = sum_of(own_);
    reductions_.all_reduce(ReduceOp::sum, std::vector{all.view()});
    results.emplace_back("all_reduce", is_right(all.view()));

    const Tensor one = sum_of(own_);
    reductions_.reduce_to_one(ReduceOp::sum, std::vector{one.view()}, 0);
    results.emplace_back("reduce_to_one", rank_ != 0 || is_right(one.view()));

    const Tensor started = sum_of(own_);
    reductions_.start(started.view()).wait();
    results.emplace_back("start", is_right(started.view()));

    // In memory that the ranks of a node share, if there is some, and in two halves.
    SharedAllocation shared = reductions_.allocate_shared(static_cast<std::size_t>(count_) * sizeof(T));
    const Tensor apart = Tensor::zeros(detail::dtype_of<T>, {count_});
    const TensorView home =
        shared.memory.data() ? TensorView{shared.memory.data(), {count_}, detail::dtype_of<T>} : apart.view();
    const Tensor mine = sum_of(own_);
    const auto bring = [&] { copy(mine.view(), home, Stream::host()); };
    bring();
    reductions_.all_reduce(ReduceOp::sum, std::vector{home});
    results.emplace_back("all_reduce in shared memory", is_right(home));
    bring();
    reductions_.start(home).wait();
    results.emplace_back("start in shared memory", is_right(home));
    const std::array<std::int64_t, 1> counts{count_};
    const Sliced message{home, std::make_shared<const detail::SliceMap>(reductions_.packing(), counts, sizeof(T),
                                                                        reductions_.slice_owners())};
    bring();
    reductions_.start_scatter(message).wait();
    bool has_slices = true;
    for (const auto& slice : message.slices->of(rank_))
      has_slices &= is_right(home.slice(slice.first, slice.count), slice.first);
    results.emplace_back("start_scatter", has_slices);
    reductions_.gather_slices({&message, 1});
    results.emplace_back("gather_slices", is_right(home));

    // Numbers of several types travel together.
    const Tensor real = sum_of(own_), whole = Tensor::from(std::vector<std::int64_t>{own_.size()}, {1});
    reductions_.start_all_reduce(ReduceOp::sum, std::vector{real.view(), whole.view()}).wait();
    results.emplace_back("start_all_reduce",
                         is_right(real.view()) && whole.to_vector<std::int64_t>().front() == shards_);
    return results;
  }

  /// The same of ranks that have several subtrees each (Shares::even).
  std::vector<std::pair<std::string, bool>> results_of_subtrees() {
    const Shares shares = Shares::even(shards_, ranks_);
    const Tensor expected = sum_of({0, shards_});
    std::vector<std::pair<std::string, bool>> results;
    for (const bool in_shared : {false, true}) {
      const std::size_t bytes = static_cast<std::size_t>(count_) * sizeof(T);
      const SharedAllocation shared = reductions_.allocate_shared(bytes);
      const Tensor apart = Tensor::zeros(detail::dtype_of<T>, {count_});
      const TensorView home = in_shared && shared.memory.data()
                                  ? TensorView{static_cast<std::byte*>(shared.memory.data()), {count_}, apart.dtype()}
                                  : apart.view();
      const Subtrees subtrees{reductions_, shares, rank_, home};
      const Reductions::OfSubtrees of_subtrees{reductions_, &subtrees};
      const auto bring = [&] {
        const std::vector<TensorView> parts = subtrees.parts_of(home);
        for (std::size_t part = 0; part < parts.size(); ++part)
          copy(sum_of(shares.subtrees_of(rank_)[part]).view(), parts[part], Stream::host());
      };
      const auto is_right = [&](std::int64_t first, std::int64_t count) {
        const std::size_t offset = static_cast<std::size_t>(first) * sizeof(T);
        return std::memcmp(home.data() + offset, expected.view().data() + offset,
                           static_cast<std::size_t>(count) * sizeof(T)) == 0;
      };
      const std::string where = in_shared ? " in shared memory" : "";
      bring();
      // Half of the memory each, as buckets of gradients are.
      Work first = reductions_.start(home.slice(0, count_ / 2));
      Work second = reductions_.start(home.slice(count_ / 2, count_ - count_ / 2));
      first.wait();
      second.wait();
      results.emplace_back("start" + where, is_right(0, count_));
      bring();
      const std::array<std::int64_t, 1> counts{count_};
      const Sliced message{home, std::make_shared<const detail::SliceMap>(reductions_.packing(), counts, sizeof(T),
                                                                          reductions_.slice_owners())};
      reductions_.start_scatter(message).wait();
      bool has_slices = true;
      for (const auto& slice : message.slices->of(rank_)) has_slices &= is_right(slice.first, slice.count);
      results.emplace_back("start_scatter" + where, has_slices);
      reductions_.gather_slices({&message, 1});
      results.emplace_back("gather_slices" + where, is_right(0, count_));
    }
    return results;
  }

  /// The sum of all ranks' parts, as if they were of so many shards.
  std::vector<T> sum_over(int shards) {
    const Reductions::OfShards of_shards{reductions_, shards};
    const Tensor all = sum_of(own_);
    reductions_.all_reduce(ReduceOp::sum, std::vector{all.view()});
    return all.to_vector<T>();
  }

 private:
  /// A tensor of its own each time.
  Tensor sum_of(const Range& shards) {
    const auto [sum, is_new] =
        sums_.try_emplace({shards.first, shards.last}, Tensor::zeros(detail::dtype_of<T>, {count_}));
    if (is_new) add_up(shards, sum->second.view());
    const Tensor made = Tensor::zeros(detail::dtype_of<T>, {count_});
    copy(sum->second.view(), made.view(), Stream::host());
    return made;
  }

  void add_up(const Range& shards, const TensorView& into) const {
    FixedOrderAccumulator sum{detail::dtype_of<T>, count_};
    for (std::int64_t shard = shards.first; shard < shards.last; ++shard) {
      const RandomStream random{5, RandomStream::Purpose::initial_value, static_cast<std::uint64_t>(shard)};
      const auto part = sum.next();
      std::uint64_t index = 0;
      for (T& element : part.elements<T>()) {
        const std::uint64_t bits = random.bits(index++);
        const auto scale = static_cast<double>(std::uint64_t{1} << bits % 30);
        element = static_cast<T>((static_cast<double>(bits >> 11) * 0x1p-53 - 0.5) * scale);
      }
      sum.push();
    }
    sum.finish(into);
  }

  Reductions& reductions_;
  int shards_;
  std::int64_t count_;
  int rank_, ranks_;
  Range own_;
  /// By their first shard, and the one after their last.
  std::map<std::pair<std::int64_t, std::int64_t>, Tensor> sums_;
};

}  // namespace lockstep::test
