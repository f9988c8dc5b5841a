// Reductions on one rank, by the fixed tree or by a function of the program.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/element_type.hpp"
#include "comm/communicator.hpp"
#include "reduce/arithmetic.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/flat_ops.hpp"
#include "reduce/implementations.hpp"

namespace lockstep {
namespace {

// The elements of all ranks that are combined at once: how much memory the one rank needs.
constexpr std::int64_t gathered_bytes = 4 << 20;

class ToOneRankOps final : public detail::FlatOps {
 public:
  ToOneRankOps(Communicator& communicator, ReductionOptions::Accumulate accumulate, const Packing& packing)
      : FlatOps{communicator, packing}, accumulate_{std::move(accumulate)} {}

  std::string_view name() const override {
    return accumulate_ ? "reduction to one rank by a function" : "reduction to one rank";
  }

 protected:
  void reduce(ReduceOp op, const TensorView& flat) override {
    reduce_to(op, flat, 0);
    communicator().broadcast(flat, 0).wait();
  }

  void reduce_to(ReduceOp op, const TensorView& flat, int root) override {
    const std::int64_t ranks = communicator().size();
    const std::int64_t longest =
        std::max<std::int64_t>(64, gathered_bytes / static_cast<std::int64_t>(size_of(flat.dtype())) / ranks);
    for (std::int64_t first = 0; first < flat.count(); first += longest)
      reduce_piece(op, flat.slice(first, std::min(longest, flat.count() - first)), root);
  }

 private:
  void reduce_piece(ReduceOp op, const TensorView& piece, int root) {
    const int ranks = communicator().size();
    const TensorView gathered = gathered_.take(communicator(), piece.dtype(), piece.count() * ranks);
    std::vector<TensorView> parts;
    std::vector<std::int64_t> bounds{0};
    for (int rank = 0; rank < ranks; ++rank) {
      parts.push_back(gathered.slice(bounds.back(), piece.count()));
      bounds.push_back(bounds.back() + piece.count());
    }
    copy(piece, parts[static_cast<std::size_t>(communicator().rank())], stream());
    communicator().gather(gathered, bounds, root).wait();
    if (communicator().rank() != root) return;
    if (accumulate_) {
      accumulate_(parts, piece, stream());
      detail::divide(piece, divisor(op), stream());
    } else {
      detail::tree_sum({.first = parts.front(), .stride = piece.count(), .count = ranks}, divisor(op), piece, stream());
    }
  }

  ReductionOptions::Accumulate accumulate_;
  detail::Scratch gathered_;
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_to_one_rank_ops(Communicator& communicator,
                                                     ReductionOptions::Accumulate accumulate, Packing packing) {
  return std::make_unique<ToOneRankOps>(communicator, std::move(accumulate), packing);
}

}  // namespace lockstep
