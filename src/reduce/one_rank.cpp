#include "reduce/one_rank.hpp"

#include <algorithm>
#include <vector>

#include "reduce/arithmetic.hpp"

namespace lockstep::detail {
namespace {

// The elements of all ranks that are combined at once: how much memory the one rank needs.
constexpr std::int64_t gathered_bytes = 4 << 20;

}  // namespace

void OneRank::run(const Request& request) {
  const TensorView& flat = request.tensors.front();
  const int root = request.kind == Request::Kind::reduce ? request.root : 0;
  const std::int64_t longest = std::max<std::int64_t>(
      64, gathered_bytes / static_cast<std::int64_t>(size_of(flat.dtype())) / communicator_.size());
  for (std::int64_t first = 0; first < flat.count(); first += longest)
    combine(request, flat.slice(first, std::min(longest, flat.count() - first)), root);
  if (request.kind == Request::Kind::all_reduce) communicator_.broadcast(flat, root).wait();
}

void OneRank::combine(const Request& request, const TensorView& piece, int root) {
  const int ranks = communicator_.size();
  const TensorView gathered = gathered_.take(communicator_, piece.dtype(), piece.count() * ranks);
  std::vector<TensorView> parts;
  std::vector<std::int64_t> bounds{0};
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back(gathered.slice(bounds.back(), piece.count()));
    bounds.push_back(bounds.back() + piece.count());
  }
  Stream& stream = communicator_.stream();
  copy(piece, parts[static_cast<std::size_t>(communicator_.rank())], stream);
  communicator_.gather(gathered, bounds, root).wait();
  if (communicator_.rank() != root) return;
  if (accumulate_) {
    accumulate_(parts, piece, stream);
    divide(piece, request.divisor(ranks), stream);
  } else {
    tree_sum({.first = parts.front(), .stride = piece.count(), .count = ranks}, request.divisor(ranks), piece, stream);
  }
}

}  // namespace lockstep::detail
