#include "reduce/flat_ops.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "reduce/arithmetic.hpp"

namespace lockstep::detail {
namespace {

/// The tensors as one piece of memory, if that is how they lie.
std::optional<TensorView> contiguous(std::span<const TensorView> tensors) {
  std::int64_t count = 0;
  const std::byte* end = tensors.front().data();
  for (const TensorView& tensor : tensors) {
    if (tensor.data() != end) return std::nullopt;
    end += tensor.bytes();
    count += tensor.count();
  }
  return TensorView{tensors.front().data(), {count}, tensors.front().dtype(), tensors.front().device()};
}

template <class Body>
void for_each_piece(const Tensor& flat, std::span<const TensorView> tensors, Body&& body) {
  std::int64_t first = 0;
  for (const TensorView& tensor : tensors) {
    body(flat.view().slice(first, tensor.count()).reshaped(tensor.shape()), tensor);
    first += tensor.count();
  }
}

}  // namespace

void FlatOps::all_reduce(ReduceOp op, std::span<const TensorView> tensors) {
  for_each_flat(tensors, [&](const TensorView& flat) {
    sum(flat);
    finish(op, flat);
  });
}

void FlatOps::reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) {
  for_each_flat(tensors, [&](const TensorView& flat) {
    sum_to(flat, root);
    if (communicator_.rank() == root) finish(op, flat);
  });
}

void FlatOps::broadcast(std::span<const TensorView> tensors, int root) {
  for_each_flat(tensors, [&](const TensorView& flat) { communicator_.broadcast(flat, root).wait(); });
}

void FlatOps::finish(ReduceOp op, const TensorView& sum) {
  if (op == ReduceOp::mean) divide(sum, communicator_.size(), stream());
}

/// Calls `body` once a dtype, with all its tensors as one flat view, and brings what `body` made of it back.
template <class Body>
void FlatOps::for_each_flat(std::span<const TensorView> tensors, Body&& body) {
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

template <class Body>
void FlatOps::packed(std::span<const TensorView> tensors, Body&& body) {
  std::int64_t count = 0;
  for (const TensorView& tensor : tensors) count += tensor.count();
  const Tensor flat = Tensor::zeros(tensors.front().dtype(), {count}, stream());
  for_each_piece(flat, tensors,
                 [&](const TensorView& piece, const TensorView& tensor) { copy(tensor, piece, stream()); });
  body(flat.view());
  for_each_piece(flat, tensors,
                 [&](const TensorView& piece, const TensorView& tensor) { copy(piece, tensor, stream()); });
}

}  // namespace lockstep::detail
