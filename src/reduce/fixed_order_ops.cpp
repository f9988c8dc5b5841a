#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/reduce/cross_device_ops.hpp>
#include <lockstep/reduce/fixed_order.hpp>

#include "reduce/dispatch.hpp"

namespace lockstep {
namespace {

// What is exchanged at once: small enough to stay in the cache between the sum and its return, large enough that a
// message's start-up does not count, and far below what MPI can address.
constexpr std::int64_t bucket_bytes = 4 << 20;

/// The tensors as one piece of memory, if that is how they lie.
std::optional<TensorView> contiguous(std::span<const TensorView> tensors) {
  std::int64_t count = 0;
  const std::byte* end = tensors.front().data();
  for (const TensorView& tensor : tensors) {
    if (tensor.data() != end) return std::nullopt;
    end += tensor.bytes();
    count += tensor.count();
  }
  return TensorView{tensors.front().data(), {count}, tensors.front().dtype()};
}

class FixedOrderOps final : public CrossDeviceOps {
 public:
  explicit FixedOrderOps(Communicator& communicator) : communicator_{communicator} {}

  std::string_view name() const override { return "fixed-order sum"; }

  void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    for_each_flat(tensors, [&](const TensorView& flat) {
      sum_in_buckets(
          flat, [&](const TensorView& bucket, SliceBounds bounds) { communicator_.all_gather(bucket, bounds).wait(); });
      divide(op, flat);
    });
  }

  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) override {
    for_each_flat(tensors, [&](const TensorView& flat) {
      sum_in_buckets(flat, [&](const TensorView& bucket, SliceBounds bounds) {
        communicator_.gather(bucket, bounds, root).wait();
      });
      if (communicator_.rank() == root) divide(op, flat);
    });
  }

  void broadcast(std::span<const TensorView> tensors, int root) override {
    for_each_flat(tensors, [&](const TensorView& flat) { communicator_.broadcast(flat, root).wait(); });
  }

 private:
  /// Calls `body` once a dtype, with all its tensors as one flat view, and brings what `body` made of it back.
  void for_each_flat(std::span<const TensorView> tensors, const std::function<void(const TensorView&)>& body) {
    std::vector<DType> seen;
    for (const TensorView& first : tensors) {
      const DType dtype = first.dtype();
      if (std::find(seen.begin(), seen.end(), dtype) != seen.end()) continue;
      seen.push_back(dtype);
      std::vector<TensorView> alike;
      std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(alike),
                   [&](const TensorView& tensor) { return tensor.dtype() == dtype; });
      if (const auto flat = contiguous(alike)) {
        body(*flat);
      } else {
        packed(alike, body);
      }
    }
  }

  void packed(std::span<const TensorView> tensors, const std::function<void(const TensorView&)>& body) {
    std::int64_t count = 0;
    for (const TensorView& tensor : tensors) count += tensor.count();
    const Tensor flat = Tensor::zeros(tensors.front().dtype(), {count});
    for_each_piece(flat, tensors, [](const TensorView& piece, const TensorView& tensor) { copy(tensor, piece); });
    body(flat.view());
    for_each_piece(flat, tensors, [](const TensorView& piece, const TensorView& tensor) { copy(piece, tensor); });
  }

  template <class Body>
  static void for_each_piece(const Tensor& flat, std::span<const TensorView> tensors, Body&& body) {
    std::int64_t first = 0;
    for (const TensorView& tensor : tensors) {
      body(flat.view().slice(first, tensor.count()).reshaped(tensor.shape()), tensor);
      first += tensor.count();
    }
  }

  /// Each rank ends with its slice of every bucket summed over the ranks; `collect` then brings the slices together.
  template <class Collect>
  void sum_in_buckets(const TensorView& flat, Collect&& collect) {
    const int ranks = communicator_.size();
    if (ranks == 1) return;
    const std::int64_t bucket_count = bucket_bytes / static_cast<std::int64_t>(size_of(flat.dtype()));
    for (std::int64_t first = 0; first < flat.count(); first += bucket_count) {
      const TensorView bucket = flat.slice(first, std::min(bucket_count, flat.count() - first));
      const auto bounds = even_slices(bucket.count(), ranks);
      const auto rank = static_cast<std::size_t>(communicator_.rank());
      const TensorView mine = bucket.slice(bounds[rank], bounds[rank + 1] - bounds[rank]);
      const TensorView received = scratch(flat.dtype(), mine.count() * ranks);
      communicator_.all_to_all(bucket, bounds, received).wait();
      fixed_order_sum(received, ranks, mine);
      collect(bucket, bounds);
    }
  }

  void divide(ReduceOp op, const TensorView& flat) const {
    if (op != ReduceOp::mean) return;
    with_element_type(flat.dtype(), [&]<class T>() {
      for (T& x : flat.elements<T>()) x = static_cast<T>(x / static_cast<T>(communicator_.size()));
    });
  }

  /// Grows once to the largest bucket and stays: no allocation in a training step.
  TensorView scratch(DType dtype, std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count) * size_of(dtype);
    if (scratch_.bytes() < bytes) scratch_ = communicator_.allocate(bytes);
    return {scratch_.data(), {count}, dtype};
  }

  Communicator& communicator_;
  Buffer scratch_;
};

}  // namespace

void require_reducible(ReduceOp op, DType dtype) {
  with_element_type(dtype, []<class T>() {});
  if (op == ReduceOp::mean && !is_floating_point(dtype))
    throw InvalidArgument{fmt::format(
        "the mean of {} tensors is refused: it is not an integer; sum them, or convert them to f64", name_of(dtype))};
}

std::unique_ptr<CrossDeviceOps> make_fixed_order_ops(Communicator& communicator) {
  return std::make_unique<FixedOrderOps>(communicator);
}

}  // namespace lockstep
