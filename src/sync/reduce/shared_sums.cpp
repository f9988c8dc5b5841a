#include "sync/reduce/shared_sums.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/element_type.hpp"
#include "core/comm/slices.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/messages.hpp"

namespace lockstep::detail {
namespace {

// Up to this size, for all ranks together, a second fence costs more than summing everything everywhere. A fence costs
// much more where the ranks take turns on a core.
constexpr std::int64_t whole_in_slots = 2 << 10, whole_in_turns = 32 << 10;

// A slice begins at a cache line of its own where the tensor does.
constexpr std::int64_t line_bytes = 64;

/// At most `most` elements of a rank's slice, from `first` on.
TensorView slice_of(const TensorView& flat, SliceBounds bounds, std::size_t rank, std::int64_t first,
                    std::int64_t most) {
  const std::int64_t begin = std::min(bounds[rank] + first, bounds[rank + 1]);
  return flat.slice(begin, std::min(most, bounds[rank + 1] - begin));
}

void copy_bytes(void* to, const TensorView& from) {
  if (from.bytes() > 0) std::memcpy(to, from.data(), from.bytes());
}

/// How much of so many bytes a part may have, if each rank has its parts there, up to the most that one has.
std::size_t room_of_part(std::size_t bytes, const Subtrees* subtrees) {
  const auto most = static_cast<std::size_t>(subtrees ? subtrees->shares().most_of_rank() : 1);
  return bytes / most / line_bytes * line_bytes;
}

/// Calls `body(first, count)` for each slice of `rank`, which has number `rank` in each piece.
template <class Body>
void for_each_slice(const Sliced& message, int rank, Body&& body) {
  for (std::size_t piece = 0; piece < message.slices->pieces(); ++piece) {
    const SliceBounds bounds = message.slices->bounds(piece).subspan(static_cast<std::size_t>(rank), 2);
    if (bounds[0] < bounds[1]) body(bounds[0], bounds[1] - bounds[0]);
  }
}

}  // namespace

PartPlaces::PartPlaces(const NodeMemory& memory, const TensorView& whole, const Subtrees* subtrees)
    : message{memory.place_of(whole.data(), whole.bytes())} {
  if (!message) return;
  word = message->word;
  if (!subtrees) return;
  for (const TensorView& each : subtrees->others_of(whole)) {
    const auto place = memory.place_of(each.data(), each.bytes());
    if (!place) {
      message.reset();
      word = 0;
      return;
    }
    others.push_back(*place);
    word = word * 31 + place->word;
  }
}

std::vector<std::int64_t> PartPlaces::offsets(std::span<const int> numbers) const {
  std::vector<std::int64_t> offsets;
  for (std::size_t rank = 0; rank + 1 < numbers.size(); ++rank) {
    const auto first_others = static_cast<std::size_t>(numbers[rank + 1] - numbers[rank] - 1);
    for (std::size_t part = 0; part <= first_others; ++part) {
      const NodeMemory::Place& place = part < first_others ? others[part] : *message;
      offsets.push_back(place.first - message->first + static_cast<std::int64_t>(rank) * place.stride);
    }
  }
  return offsets;
}

bool SharedSums::takes_whole(std::int64_t bytes) const {
  return bytes * memory_.size() <= (memory_.has_enough_cores() ? whole_in_slots : whole_in_turns);
}

void SharedSums::run(const Request& request) {
  if (request.kind == Request::Kind::to_owners)
    return sum_own(request.slices.front(), request.rule(1), request.subtrees);
  if (request.kind == Request::Kind::to_all) return spread(request.slices);
  if (request.tensors.size() > 1 || takes_whole(padded(request.tensors))) return sum_whole(request);
  const TensorView& flat = request.tensors.front();
  if (const auto met = meet_at(flat, request.subtrees)) {
    sum_slice(*met, flat, request);
    memory_.exchange();
  } else {
    for_each_bucket(flat, static_cast<std::int64_t>(room_of_part(NodeMemory::slot_bytes, request.subtrees)),
                    [&](const TensorView& piece) { sum_in_slots(piece, request); });
  }
}

void SharedSums::sum_whole(const Request& request) {
  std::byte* to = memory_.slot();
  for (const TensorView& tensor : request.tensors) {
    copy_bytes(to, tensor);
    to += padded(tensor.bytes());
  }
  memory_.exchange();
  if (!request.reaches(memory_.rank())) return;
  std::byte* from = memory_.slots();
  for (const TensorView& tensor : request.tensors) {
    tree_sum({from, NodeMemory::slot_stride(), memory_.size()}, tensor.dtype(), tensor.count(),
             request.rule(memory_.size()), tensor.data());
    from += padded(tensor.bytes());
  }
}

/// A fence. The place of `flat`, if all ranks have it, and their other parts, at the same ones of the memory that they
/// share.
auto SharedSums::meet_at(const TensorView& flat, const Subtrees* subtrees) -> std::optional<Met> {
  const PartPlaces places{memory_, flat, subtrees};
  if (!memory_.exchange(places.word) || !places.message) return std::nullopt;
  return Met{*places.message, subtrees ? places.offsets(subtrees->shares().numbers()) : std::vector<std::int64_t>{}};
}

/// Lays `views` down, each in so much room of the slot, and meets all ranks. Each part is so many of them.
auto SharedSums::meet_in_slots(std::span<const TensorView> views, std::size_t room, std::size_t of_part,
                               const Subtrees* subtrees) -> Met {
  std::byte* to = memory_.slot();
  for (const TensorView& view : views) {
    copy_bytes(to, view);
    to += room;
  }
  memory_.exchange();
  Met met{{1, memory_.slots(), NodeMemory::slot_stride()}, {}};
  if (!subtrees) return met;
  for (int rank = 0; rank < memory_.size(); ++rank)
    for (std::size_t part = 0; part < subtrees->shares().subtrees_of(rank).size(); ++part)
      met.offsets.push_back(rank * met.place.stride + static_cast<std::int64_t>(part * of_part * room));
  return met;
}

/// This rank's slice of all parts, for all that get the result.
void SharedSums::sum_slice(const Met& met, const TensorView& flat, const Request& request) {
  const int ranks = memory_.size();
  const auto rank = static_cast<std::size_t>(memory_.rank());
  const auto size = static_cast<std::int64_t>(size_of(flat.dtype()));
  const auto bounds = even_slices(flat.count(), ranks, line_bytes / size);
  const bool to_one = request.kind == Request::Kind::reduce;
  tree_sum_in_place(met.from(bounds[rank] * size, ranks), flat.dtype(), bounds[rank + 1] - bounds[rank],
                    request.rule(ranks), to_one ? request.root : 0, to_one ? request.root + 1 : ranks);
}

/// Of a tensor that fits into the slot as often as a rank has subtrees.
void SharedSums::sum_in_slots(const TensorView& flat, const Request& request) {
  std::byte* const mine = memory_.slot();
  const std::size_t room = room_of_part(NodeMemory::slot_bytes, request.subtrees);
  const auto parts = request.subtrees ? request.subtrees->parts_of(flat) : std::vector<TensorView>{};
  sum_slice(meet_in_slots(parts.empty() ? std::span{&flat, 1} : std::span{parts}, room, 1, request.subtrees), flat,
            request);
  // The other ranks are done with this rank's slot, so it need not wait for the next exchange to read the sum.
  memory_.exchange();
  if (request.reaches(memory_.rank())) std::memcpy(flat.data(), mine, flat.bytes());
}

void SharedSums::sum_own(const Sliced& message, const SumRule& rule, const Subtrees* subtrees) {
  const auto met = meet_at(message.memory, subtrees);
  if (!met)
    return for_each_piece(
        message, [&](const auto& piece, const auto& bounds) { sum_own_in_slots(piece, bounds, rule, subtrees); });
  for_each_slice(message, memory_.rank(), [&](std::int64_t first, std::int64_t count) {
    const auto offset = message.memory.slice(first, count).data() - message.memory.data();
    tree_sum_in_place(met->from(offset, memory_.size()), message.memory.dtype(), count, rule, memory_.rank(),
                      memory_.rank() + 1);
  });
}

/// A piece of every slice at a time, so that all ranks have something to sum.
void SharedSums::sum_own_in_slots(const TensorView& flat, SliceBounds bounds, const SumRule& rule,
                                  const Subtrees* subtrees) {
  const auto ranks = static_cast<std::size_t>(memory_.size()), rank = static_cast<std::size_t>(memory_.rank());
  const std::size_t room = room_of_part(NodeMemory::slot_bytes / ranks, subtrees);
  const auto most = static_cast<std::int64_t>(room / size_of(flat.dtype()));
  const std::vector<TensorView> parts = subtrees ? subtrees->parts_of(flat) : std::vector{flat};
  std::vector<TensorView> slices;
  for (std::int64_t first = 0, longest = longest_slice(bounds); first < longest; first += most) {
    slices.clear();
    for (const TensorView& part : parts)
      for (std::size_t r = 0; r < ranks; ++r) slices.push_back(slice_of(part, bounds, r, first, most));
    const Met met = meet_in_slots(slices, room, ranks, subtrees);
    const TensorView mine = slice_of(flat, bounds, rank, first, most);
    tree_sum(met.from(static_cast<std::ptrdiff_t>(rank * room), memory_.size()), mine.dtype(), mine.count(), rule,
             mine.data());
  }
}

void SharedSums::spread_in_slots(const TensorView& flat, SliceBounds bounds) {
  const auto rank = static_cast<std::size_t>(memory_.rank());
  const auto most = static_cast<std::int64_t>(NodeMemory::slot_bytes / size_of(flat.dtype()));
  for (std::int64_t first = 0, longest = longest_slice(bounds); first < longest; first += most) {
    copy_bytes(memory_.slot(), slice_of(flat, bounds, rank, first, most));
    memory_.exchange();
    const std::byte* from = memory_.slots();
    for (std::size_t r = 0; r + 1 < bounds.size(); ++r, from += NodeMemory::slot_stride())
      if (const TensorView theirs = slice_of(flat, bounds, r, first, most); r != rank && theirs.bytes() > 0)
        std::memcpy(theirs.data(), from, theirs.bytes());
  }
}

/// A fence for each message, and one for all that are written to shared memory.
void SharedSums::spread(std::span<const Sliced> messages) {
  const int ranks = memory_.size(), rank = memory_.rank();
  std::vector<const Sliced*> written;
  for (const Sliced& message : messages) {
    const auto met = meet_at(message.through);
    if (!met) {
      for_each_piece(message, [&](const auto& piece, const auto& bounds) { spread_in_slots(piece, bounds); });
      continue;
    }
    // A rank writes where it has read for the sum, so that it touches no other pages of another rank's memory.
    for_each_slice(message, rank, [&](std::int64_t first, std::int64_t count) {
      const TensorView mine = message.memory.slice(first, count);
      const auto offset = mine.data() - message.memory.data();
      for (int other = 0; other < ranks; ++other)
        if (other != rank) copy_bytes(met->place.first + other * met->place.stride + offset, mine);
    });
    written.push_back(&message);
  }
  if (written.empty()) return;
  memory_.exchange();
  for (const Sliced* const message : written)
    for (int other = 0; other < ranks; ++other)
      if (other != rank)
        for_each_slice(*message, other, [&](std::int64_t first, std::int64_t count) {
          copy_bytes(message->memory.slice(first, count).data(), message->through.slice(first, count));
        });
}

}  // namespace lockstep::detail
