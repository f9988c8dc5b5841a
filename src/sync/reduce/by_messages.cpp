#include "sync/reduce/by_messages.hpp"

#include <algorithm>
#include <vector>

#include "core/base/element_type.hpp"
#include "core/comm/slices.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/paths.hpp"

namespace lockstep::detail {

bool ByMessages::takes_whole(std::int64_t bytes) const {
  return bytes * communicator_.size() <= whole_bytes;
}

void ByMessages::run(const Request& request) {
  if (!request.rows.empty() || !request.to_gather.empty()) return exchange_rows(communicator_, request);
  if (request.kind == Request::Kind::broadcast) {
    for (const TensorView& tensor : request.tensors) communicator_.broadcast(tensor, request.root).wait();
    return;
  }
  if (communicator_.size() == 1) return;
  for (const Sliced& message : request.slices)
    for_each_piece(message, [&](const TensorView& piece, SliceBounds bounds) {
      request.is_sum() ? sum_own(piece, bounds, request.rule(1), request.subtrees) : collect(request, piece, bounds);
    });
  if (!request.tensors.empty()) takes_whole(padded(request.tensors)) ? sum_whole(request) : sum_in_buckets(request);
}

void ByMessages::sum_in_buckets(const Request& request) {
  for_each_bucket(request.tensors.front(), bucket_bytes, [&](const TensorView& bucket) {
    const auto bounds = even_slices(bucket.count(), communicator_.size());
    sum_own(bucket, bounds, request.rule(communicator_.size()), request.subtrees);
    collect(request, bucket, bounds);
  });
}

void ByMessages::sum_own(const TensorView& piece, SliceBounds bounds, const SumRule& rule, const Subtrees* subtrees) {
  const int ranks = communicator_.size();
  const auto rank = static_cast<std::size_t>(communicator_.rank());
  const TensorView mine = piece.slice(bounds[rank], bounds[rank + 1] - bounds[rank]);
  if (subtrees) {
    const auto offsets = exchange_parts(piece, subtrees->parts_of(piece), subtrees->shares().numbers(), bounds);
    return tree_sum(HostPieces{mine.data(), 0, static_cast<int>(offsets.size()), offsets}, piece.dtype(), mine.count(),
                    rule, mine.data());
  }
  const TensorView parts = exchanged_.take(communicator_, piece.dtype(), mine.count() * ranks);
  communicator_.all_to_all(piece, bounds, parts).wait();
  if (mine.count() > 0)
    tree_sum({.first = parts.slice(0, mine.count()), .stride = mine.count(), .count = ranks}, rule, mine,
             communicator_.stream());
}

/// A rank with fewer parts than others sends its last one again, which nobody reads.
std::vector<std::int64_t> ByMessages::exchange_parts(const TensorView& piece, std::span<const TensorView> parts,
                                                     std::span<const int> numbers, SliceBounds bounds) {
  const int ranks = communicator_.size();
  const auto rank = static_cast<std::size_t>(communicator_.rank());
  const auto parts_of = [&](std::size_t of) { return numbers[of + 1] - numbers[of]; };
  int most = 0;
  for (std::size_t of = 0; of + 1 < numbers.size(); ++of) most = std::max(most, parts_of(of));
  const TensorView mine = piece.slice(bounds[rank], bounds[rank + 1] - bounds[rank]);
  const TensorView received = exchanged_.take(communicator_, piece.dtype(), mine.count() * ranks * most);
  for (int turn = 0; turn < most; ++turn)
    communicator_
        .all_to_all(parts[std::min(static_cast<std::size_t>(turn), parts.size() - 1)], bounds,
                    received.slice(mine.count() * ranks * turn, mine.count() * ranks))
        .wait();
  std::vector<std::int64_t> offsets;
  for (int each = 0; each < ranks; ++each)
    for (int turn = 0; turn < parts_of(static_cast<std::size_t>(each)); ++turn)
      offsets.push_back(received.data() - mine.data() +
                        static_cast<std::int64_t>(mine.bytes()) * (ranks * turn + each));
  return offsets;
}

/// Brings the ranks' slices together, where the request says.
void ByMessages::collect(const Request& request, const TensorView& whole, SliceBounds bounds) {
  (request.kind == Request::Kind::reduce ? communicator_.gather(whole, bounds, request.root)
                                         : communicator_.all_gather(whole, bounds))
      .wait();
}

/// The tensors of a rank lie one after the other in its slice of what is exchanged.
void ByMessages::sum_whole(const Request& request) {
  const std::span<const TensorView> tensors = request.tensors;
  const int ranks = communicator_.size(), rank = communicator_.rank();
  std::vector<std::int64_t> offsets{0};
  for (const TensorView& tensor : tensors) offsets.push_back(offsets.back() + padded(tensor.bytes()));
  const std::int64_t piece = offsets.back();
  const TensorView pieces = exchanged_.take(communicator_, DType::u8, piece * ranks);
  const auto part_of = [&](std::size_t tensor, int of) {
    const TensorView& whole = tensors[tensor];
    return TensorView{pieces.data() + piece * of + offsets[tensor], whole.shape(), whole.dtype(), whole.device()};
  };
  Stream& stream = communicator_.stream();
  for (std::size_t i = 0; i < tensors.size(); ++i) copy(tensors[i], part_of(i, rank), stream);
  collect(request, pieces, even_slices(pieces.count(), ranks, 1));
  if (!request.reaches(rank)) return;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto stride = piece / static_cast<std::int64_t>(size_of(tensors[i].dtype()));
    tree_sum({.first = part_of(i, 0), .stride = stride, .count = ranks}, request.rule(ranks), tensors[i], stream);
  }
}

}  // namespace lockstep::detail
