#include "reduce/shared_sums.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/element_type.hpp"
#include "comm/communicator.hpp"
#include "reduce/arithmetic.hpp"
#include "reduce/messages.hpp"

namespace lockstep::detail {
namespace {

// Up to this size, for all ranks together, a second fence costs more than summing everything everywhere. A fence costs
// much more where the ranks take turns on a core.
constexpr std::int64_t whole_in_slots = 2 << 10, whole_in_turns = 32 << 10;

// Suits every element type.
constexpr std::size_t alignment = 16;

// A slice begins at a cache line of its own where the tensor does.
constexpr std::int64_t line_bytes = 64;

/// At most `most` elements of a rank's slice, from `first` on.
TensorView slice_of(const TensorView& flat, SliceBounds bounds, std::size_t rank, std::int64_t first = 0,
                    std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  const std::int64_t begin = std::min(bounds[rank] + first, bounds[rank + 1]);
  return flat.slice(begin, std::min(most, bounds[rank + 1] - begin));
}

void copy_bytes(void* to, const TensorView& from) {
  if (from.bytes() > 0) std::memcpy(to, from.data(), from.bytes());
}

}  // namespace

void SharedSums::run(const Request& request) {
  if (request.kind == Request::Kind::to_owners) return sum_own(request.slices.front());
  if (request.kind == Request::Kind::to_all) return spread(request.slices);
  const int divisor = request.divisor(memory_.size());
  const std::optional<int> root = request.kind == Request::Kind::reduce ? std::optional{request.root} : std::nullopt;
  if (request.tensors.size() == 1) return sum(request.tensors.front(), divisor, root);
  sum_whole(request.tensors, divisor, root);
}

bool SharedSums::takes_whole(std::int64_t bytes) const {
  return bytes * memory_.size() <= (memory_.has_enough_cores() ? whole_in_slots : whole_in_turns);
}

void SharedSums::sum_whole(std::span<const TensorView> tensors, int divisor, std::optional<int> root) {
  std::byte* to = memory_.slot();
  for (const TensorView& tensor : tensors) {
    if (tensor.bytes() > 0) std::memcpy(to, tensor.data(), tensor.bytes());
    to += padded(tensor.bytes());
  }
  memory_.exchange();
  if (root.value_or(memory_.rank()) != memory_.rank()) return;
  std::byte* from = memory_.slots();
  for (const TensorView& tensor : tensors) {
    tree_sum({from, NodeMemory::slot_stride(), memory_.size()}, tensor.dtype(), tensor.count(), divisor, tensor.data());
    from += padded(tensor.bytes());
  }
}

void SharedSums::sum(const TensorView& flat, int divisor, std::optional<int> root) {
  if (takes_whole(padded(flat.bytes()))) return sum_whole({&flat, 1}, divisor, root);
  const auto place = memory_.place_of(flat.data(), flat.bytes());
  const bool same = memory_.exchange(place ? place->word : 0);
  if (!same || !place) return sum_in_slots(flat, divisor, root);
  sum_slice(place->first, place->stride, flat.dtype(), flat.count(), divisor, targets(root));
  memory_.exchange();
}

void SharedSums::sum_own(const Sliced& message) {
  const TensorView& flat = message.memory;
  const auto place = memory_.place_of(flat.data(), flat.bytes());
  const bool same = memory_.exchange(place ? place->word : 0);
  const auto size = static_cast<std::int64_t>(size_of(flat.dtype()));
  const auto rank = static_cast<std::size_t>(memory_.rank());
  for (std::size_t i = 0; i < message.slices->pieces(); ++i) {
    const SliceBounds bounds = message.slices->bounds(i);
    if (same && place) {
      tree_sum_in_place({place->first + bounds[rank] * size, place->stride, memory_.size()}, flat.dtype(),
                        bounds[rank + 1] - bounds[rank], 1, memory_.rank(), memory_.rank() + 1);
    } else {
      sum_own_in_slots(flat, bounds);
    }
  }
}

void SharedSums::spread(std::span<const Sliced> messages) {
  std::vector<std::optional<NodeMemory::Place>> places;
  std::uint64_t word = 0;  // of all places, in order
  for (const Sliced& each : messages) {
    places.push_back(memory_.place_of(each.through.data(), each.through.bytes()));
    word = word * 0x9E3779B97F4A7C15 + (places.back() ? places.back()->word : 0);
  }
  const bool are_shared = std::ranges::all_of(places, [](const auto& place) { return place.has_value(); });
  if (!memory_.exchange(are_shared ? word | 1 : 0) || !are_shared) {
    for (const Sliced& each : messages)
      for (std::size_t i = 0; i < each.slices->pieces(); ++i) spread_in_slots(each.memory, each.slices->bounds(i));
    return;
  }
  const auto others = [&](const auto& body) {
    for (std::size_t i = 0; i < messages.size(); ++i)
      for (std::size_t piece = 0; piece < messages[i].slices->pieces(); ++piece)
        for (int other = 0; other < memory_.size(); ++other)
          if (other != memory_.rank()) body(messages[i], *places[i], messages[i].slices->bounds(piece), other);
  };
  // A rank writes where it has read for the sum, so that it touches no other pages of another rank's memory.
  others([&](const Sliced& each, const NodeMemory::Place& place, SliceBounds bounds, int other) {
    const TensorView mine = slice_of(each.memory, bounds, static_cast<std::size_t>(memory_.rank()));
    copy_bytes(place.first + other * place.stride + (mine.data() - each.memory.data()), mine);
  });
  memory_.exchange();
  others([&](const Sliced& each, const NodeMemory::Place&, SliceBounds bounds, int other) {
    const auto rank = static_cast<std::size_t>(other);
    copy_bytes(slice_of(each.memory, bounds, rank).data(), slice_of(each.through, bounds, rank));
  });
}

void SharedSums::sum_own_in_slots(const TensorView& flat, SliceBounds bounds) {
  const auto size = static_cast<std::int64_t>(size_of(flat.dtype()));
  const auto ranks = static_cast<std::size_t>(memory_.size()), rank = static_cast<std::size_t>(memory_.rank());
  std::int64_t longest = 0;
  for (std::size_t r = 0; r < ranks; ++r) longest = std::max(longest, bounds[r + 1] - bounds[r]);
  // A piece of every slice at a time, so that all ranks have something to sum.
  const std::size_t room = NodeMemory::slot_bytes / ranks / alignment * alignment;
  const std::int64_t most = static_cast<std::int64_t>(room) / size;
  for (std::int64_t first = 0; first < longest; first += most) {
    for (std::size_t r = 0; r < ranks; ++r)
      copy_bytes(memory_.slot() + r * room, slice_of(flat, bounds, r, first, most));
    memory_.exchange();
    const TensorView mine = slice_of(flat, bounds, rank, first, most);
    tree_sum({memory_.slots() + rank * room, NodeMemory::slot_stride(), memory_.size()}, mine.dtype(), mine.count(), 1,
             mine.data());
  }
}

void SharedSums::spread_in_slots(const TensorView& flat, SliceBounds bounds) {
  const auto size = static_cast<std::int64_t>(size_of(flat.dtype()));
  const auto ranks = static_cast<std::size_t>(memory_.size()), rank = static_cast<std::size_t>(memory_.rank());
  std::int64_t longest = 0;
  for (std::size_t r = 0; r < ranks; ++r) longest = std::max(longest, bounds[r + 1] - bounds[r]);
  const std::int64_t whole = static_cast<std::int64_t>(NodeMemory::slot_bytes) / size;
  for (std::int64_t first = 0; first < longest; first += whole) {
    copy_bytes(memory_.slot(), slice_of(flat, bounds, rank, first, whole));
    memory_.exchange();
    for (std::size_t r = 0; r < ranks; ++r) {
      const TensorView piece = slice_of(flat, bounds, r, first, whole);
      if (r != rank && piece.bytes() > 0)
        std::memcpy(piece.data(), memory_.slots() + static_cast<std::int64_t>(r) * NodeMemory::slot_stride(),
                    piece.bytes());
    }
  }
}

/// This rank's slice of pieces that all ranks reach.
void SharedSums::sum_slice(std::byte* first, std::int64_t stride, DType dtype, std::int64_t count, int divisor,
                           Targets to) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t granule = line_bytes / size, granules = (count + granule - 1) / granule;
  const auto bound = [&](int rank) { return std::min(count, granules * rank / memory_.size() * granule); };
  const std::int64_t begin = bound(memory_.rank()), end = bound(memory_.rank() + 1);
  tree_sum_in_place({first + begin * size, stride, memory_.size()}, dtype, end - begin, divisor, to.first, to.last);
}

void SharedSums::sum_in_slots(const TensorView& flat, int divisor, std::optional<int> root) {
  const auto size = static_cast<std::int64_t>(size_of(flat.dtype()));
  const std::int64_t longest = static_cast<std::int64_t>(NodeMemory::slot_bytes) / size;
  const bool receives = root.value_or(memory_.rank()) == memory_.rank();
  for (std::int64_t first = 0; first < flat.count(); first += longest) {
    const std::int64_t count = std::min(longest, flat.count() - first);
    std::byte* const home = flat.data() + first * size;
    const auto bytes = static_cast<std::size_t>(count * size);
    std::byte* const mine = memory_.slot();
    std::memcpy(mine, home, bytes);
    memory_.exchange();
    sum_slice(memory_.slots(), NodeMemory::slot_stride(), flat.dtype(), count, divisor, targets(root));
    // The other ranks are done with this rank's slot, so it need not wait for the next exchange to read the sum.
    memory_.exchange();
    if (receives) std::memcpy(home, mine, bytes);
  }
}

}  // namespace lockstep::detail
