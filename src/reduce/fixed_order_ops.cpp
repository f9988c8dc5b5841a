// Reductions in the fixed order: slices that the ranks sum and hand back, or small tensors whole. Ranks that share
// memory sum there, others exchange messages.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/element_type.hpp"
#include "comm/communicator.hpp"
#include "comm/slices.hpp"
#include "reduce/arithmetic.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/flat_ops.hpp"
#include "reduce/implementations.hpp"
#include "reduce/shared_sums.hpp"
#include "reduce/slice_map.hpp"
#include "reduce/sums_under_way.hpp"

namespace lockstep {
namespace {

// Up to this size the ranks exchange whole tensors: one message instead of two, and one for all types together.
constexpr std::int64_t whole_bytes = 64 << 10;

class FixedOrderOps final : public detail::FlatOps {
 public:
  FixedOrderOps(Communicator& communicator, const Packing& packing, Travel travel) : FlatOps{communicator, packing} {
    if (Messenger* const messenger = travel == Travel::early ? communicator.messenger() : nullptr) {
      under_way_.emplace(communicator, *messenger);
    } else if (NodeMemory* const memory = communicator.node_memory()) {
      shared_.emplace(*memory);
    }
  }

  using FlatOps::all_reduce;
  using FlatOps::reduce_to_one;

  std::string_view name() const override { return "fixed-order sum"; }

  std::int64_t enough_bytes() const override {
    return under_way_ ? detail::early_bytes : detail::FlatOps::enough_bytes();
  }

  SharedAllocation allocate_shared(std::size_t bytes) override {
    NodeMemory* const memory = communicator().node_memory();
    return memory ? memory->allocate(bytes) : SharedAllocation{};
  }

  Work start(const TensorView& message) override {
    if (!under_way_ || travels_whole({&message, 1})) return FlatOps::start(message);
    return detail::work_of(*under_way_, {under_way_->start(message)});
  }

  void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    if (is_one_message(tensors)) return reduce_whole(op, tensors);
    FlatOps::all_reduce(op, tensors);
  }

  Work start_scatter(const Sliced& message) override {
    if (!under_way_) return Work::later([this, message] { scatter(message); });
    Sent sent;
    detail::for_each_piece(message, [&](const TensorView& piece, SliceBounds bounds) {
      sent.push_back(under_way_->start_scatter(piece, bounds));
    });
    return detail::work_of(*under_way_, std::move(sent));
  }

  void gather_slices(std::span<const Sliced> messages) override {
    if (shared_) return shared_->spread(messages);
    if (!under_way_) return FlatOps::gather_slices(messages);
    Sent sent;
    for (const Sliced& message : messages)
      detail::for_each_piece(message, [&](const TensorView& piece, SliceBounds bounds) {
        sent.push_back(under_way_->start_gather(piece, bounds));
      });
    detail::work_of(*under_way_, std::move(sent)).wait();
  }

  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) override {
    if (is_one_message(tensors)) return reduce_whole_to(op, tensors, root);
    FlatOps::reduce_to_one(op, tensors, root);
  }

 protected:
  void reduce(ReduceOp op, const TensorView& flat) override {
    if (shared_) return shared_->sum(flat, divisor(op));
    if (travels_whole({&flat, 1})) return reduce_whole(op, {&flat, 1});
    if (under_way_) return under_way_->wait(*under_way_->start(flat, divisor(op)));
    sum_in_buckets(op, flat, [&](const TensorView& bucket, SliceBounds bounds) {
      communicator().all_gather(bucket, bounds).wait();
    });
  }
  void reduce_to(ReduceOp op, const TensorView& flat, int root) override {
    if (shared_) return shared_->sum(flat, divisor(op), root);
    if (travels_whole({&flat, 1})) return reduce_whole_to(op, {&flat, 1}, root);
    sum_in_buckets(op, flat, [&](const TensorView& bucket, SliceBounds bounds) {
      communicator().gather(bucket, bounds, root).wait();
    });
  }

 private:
  using Sent = std::vector<std::shared_ptr<const detail::SumsUnderWay::Message>>;

  /// With the default packing, small tensors travel as one message for all types.
  bool is_one_message(std::span<const TensorView> tensors) {
    const auto* const packs = std::get_if<detail::IntoPacks>(&packing());
    return packs && packs->num_packs == 1 && travels_whole(tensors);
  }

  bool travels_whole(std::span<const TensorView> tensors) {
    if (shared_) return shared_->travels_whole(tensors);
    std::int64_t bytes = 0;
    for (const TensorView& tensor : tensors) bytes += detail::padded(tensor.bytes());
    return bytes * communicator().size() <= whole_bytes;
  }

  void reduce_whole(ReduceOp op, std::span<const TensorView> tensors) {
    if (shared_) return shared_->sum_whole(tensors, divisor(op));
    sum_whole(op, tensors, [&](const TensorView& pieces, SliceBounds bounds) {
      communicator().all_gather(pieces, bounds).wait();
      return true;
    });
  }
  void reduce_whole_to(ReduceOp op, std::span<const TensorView> tensors, int root) {
    if (shared_) return shared_->sum_whole(tensors, divisor(op), root);
    sum_whole(op, tensors, [&](const TensorView& pieces, SliceBounds bounds) {
      communicator().gather(pieces, bounds, root).wait();
      return communicator().rank() == root;
    });
  }

  /// Each rank copies its tensors into its piece. `collect` brings the pieces together and returns whether this rank
  /// needs the result; if so, it sums the pieces itself. The tree, and so the bits, are the same as with slices.
  template <class Collect>
  void sum_whole(ReduceOp op, std::span<const TensorView> tensors, Collect&& collect) {
    const int ranks = communicator().size();
    if (tensors.empty() || ranks == 1) return;
    std::vector<std::int64_t> offsets{0};
    for (const TensorView& tensor : tensors) offsets.push_back(offsets.back() + detail::padded(tensor.bytes()));
    const std::int64_t piece = offsets.back();
    std::vector<std::int64_t> bounds;
    for (int rank = 0; rank <= ranks; ++rank) bounds.push_back(piece * rank);

    const TensorView pieces = exchanged_.take(communicator(), DType::u8, piece * ranks);
    const auto part_of = [&](std::size_t tensor, int rank) {
      const TensorView& whole = tensors[tensor];
      return TensorView{pieces.data() + piece * rank + offsets[tensor], whole.shape(), whole.dtype(), whole.device()};
    };
    for (std::size_t i = 0; i < tensors.size(); ++i) copy(tensors[i], part_of(i, communicator().rank()), stream());
    if (!collect(pieces, bounds)) return;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto stride = piece / static_cast<std::int64_t>(size_of(tensors[i].dtype()));
      detail::tree_sum({.first = part_of(i, 0), .stride = stride, .count = ranks}, divisor(op), tensors[i], stream());
    }
  }

  void scatter(const Sliced& message) {
    if (communicator().size() == 1) return;
    if (shared_) return shared_->sum_own(message);
    detail::sum_own_slices(communicator(), exchanged_, message);
  }

  /// Each rank sums its slice of every bucket over the ranks; `collect` then brings the slices together.
  template <class Collect>
  void sum_in_buckets(ReduceOp op, const TensorView& flat, Collect&& collect) {
    const int ranks = communicator().size();
    if (ranks == 1) return;
    const std::int64_t bucket_count = detail::bucket_bytes / static_cast<std::int64_t>(size_of(flat.dtype()));
    for (std::int64_t first = 0; first < flat.count(); first += bucket_count) {
      const TensorView bucket = flat.slice(first, std::min(bucket_count, flat.count() - first));
      const auto bounds = even_slices(bucket.count(), ranks);
      detail::sum_own_slice(communicator(), exchanged_, bucket, bounds, divisor(op));
      collect(bucket, bounds);
    }
  }

  detail::Scratch exchanged_;
  std::optional<detail::SharedSums> shared_;
  std::optional<detail::SumsUnderWay> under_way_;  ///< between nodes, if ranks can send while they compute
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_fixed_order_ops(Communicator& communicator, Packing packing, Travel travel) {
  return std::make_unique<FixedOrderOps>(communicator, packing, travel);
}

}  // namespace lockstep
