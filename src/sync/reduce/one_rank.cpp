#include "sync/reduce/one_rank.hpp"

#include <algorithm>
#include <vector>

#include "core/base/element_type.hpp"
#include "core/comm/slices.hpp"
#include "sync/reduce/arithmetic.hpp"

namespace lockstep::detail {

void OneRank::run(const Request& request) {
  // The elements of all ranks that are combined at once: how much memory the one rank needs.
  constexpr std::int64_t gathered_bytes = 4 << 20;
  const TensorView& flat = request.tensors.front();
  const int root = request.kind == Request::Kind::reduce ? request.root : 0;
  const auto least = 64 * static_cast<std::int64_t>(size_of(flat.dtype()));
  for_each_bucket(flat, std::max(least, gathered_bytes / communicator_.size()),
                  [&](const TensorView& piece) { combine(piece, request.rule(communicator_.size()), root); });
  if (request.kind == Request::Kind::all_reduce) communicator_.broadcast(flat, root).wait();
}

void OneRank::combine(const TensorView& piece, const SumRule& rule, int root) {
  const int ranks = communicator_.size(), rank = communicator_.rank();
  Stream& stream = communicator_.stream();
  const TensorView gathered = gathered_.take(communicator_, piece.dtype(), piece.count() * ranks);
  std::vector<TensorView> parts;
  for (int each = 0; each < ranks; ++each) parts.push_back(gathered.slice(piece.count() * each, piece.count()));
  copy(piece, parts[static_cast<std::size_t>(rank)], stream);
  communicator_.gather(gathered, even_slices(gathered.count(), ranks, 1), root).wait();
  if (rank != root) return;
  if (!accumulate_)
    return tree_sum({.first = parts.front(), .stride = piece.count(), .count = ranks}, rule, piece, stream);
  accumulate_(parts, piece, stream);
  divide(piece, rule.divisor, stream);
}

}  // namespace lockstep::detail
