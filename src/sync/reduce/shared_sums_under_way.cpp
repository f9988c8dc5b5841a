#include "sync/reduce/shared_sums_under_way.hpp"

#include <algorithm>
#include <utility>

#include "core/base/element_type.hpp"
#include "core/comm/slices.hpp"
#include "sync/reduce/shared_sums.hpp"

namespace lockstep::detail {
namespace {

constexpr std::size_t cache_line = 64;

std::size_t bytes_of(DType dtype, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * size_of(dtype);
}

}  // namespace

auto SharedSumsUnderWay::start(const TensorView& flat, const SumRule& rule) -> std::shared_ptr<const Message> {
  return start(flat, rule, std::nullopt);
}

auto SharedSumsUnderWay::start_to_one(const TensorView& flat, const SumRule& rule, int root)
    -> std::shared_ptr<const Message> {
  return start(flat, rule, std::optional{root});
}

auto SharedSumsUnderWay::start(const TensorView& flat, const SumRule& rule, std::optional<int> root)
    -> std::shared_ptr<const Message> {
  const auto message = std::make_shared<Message>();
  message->flat_ = flat;
  message->rule_ = rule;
  message->root_ = root;
  message->sum_ = flat.data();
  message->is_whole_ = SharedSums{memory_}.takes_whole(static_cast<std::int64_t>(flat.bytes()));
  add_pieces(message, flat.count(), static_cast<std::int64_t>(NodeMemory::room_bytes / size_of(flat.dtype())));
  return message;
}

auto SharedSumsUnderWay::start_scatter(const TensorView& flat, SliceBounds bounds, const TensorView& sum,
                                       const SumRule& rule) -> std::shared_ptr<const Message> {
  const auto message = std::make_shared<Message>();
  message->flat_ = flat;
  message->rule_ = rule;
  message->bounds_.assign(bounds.begin(), bounds.end());
  message->sum_ = sum.data();
  add_pieces(message, longest_slice(bounds), static_cast<std::int64_t>(room_of_slice() / size_of(flat.dtype())));
  return message;
}

void SharedSumsUnderWay::add_pieces(const std::shared_ptr<Message>& message, std::int64_t count, std::int64_t longest) {
  for (std::int64_t first = 0; first < count; first += longest, ++message->left_)
    to_lay_down_.push_back({message, first, std::min(longest, count - first), ++tasks_});
  (void)advance();
}

bool SharedSumsUnderWay::advance() {
  bool moved = false;
  const auto front = [&moved](std::deque<Piece>& pieces) {
    moved = true;
    Piece piece = std::move(pieces.front());
    pieces.pop_front();
    return piece;
  };
  while (!to_take_.empty() && memory_.ended(to_take_.front().task)) take(front(to_take_));
  while (!to_lay_down_.empty() && may_lay_down(to_lay_down_.front())) {
    lay_down(to_lay_down_.front());
    to_add_up_.push_back(front(to_lay_down_));
  }
  while (!to_add_up_.empty() && memory_.begun(to_add_up_.front().task) != NodeMemory::Begun::not_by_all) {
    Piece piece = front(to_add_up_);
    const bool is_complete = add_up(piece);
    memory_.end(piece.task);
    if (is_complete) {
      --piece.message->left_;
    } else {
      to_take_.push_back(std::move(piece));
    }
  }
  return moved;
}

/// Nobody needs what is in its room.
bool SharedSumsUnderWay::may_lay_down(const Piece& piece) const {
  const bool is_taken = to_take_.empty() || to_take_.front().task + NodeMemory::rooms > piece.task;
  return is_taken && memory_.has_room(piece.task);
}

void SharedSumsUnderWay::lay_down(const Piece& piece) const {
  const Message& message = *piece.message;
  std::byte* const room = own_room(piece);
  if (message.bounds_.empty()) {
    const TensorView laid = message.flat_.slice(piece.first, piece.count);
    std::copy_n(laid.data(), laid.bytes(), room);
  } else {
    for (int rank = 0; rank < memory_.size(); ++rank) {
      const TensorView slice = slice_of(piece, rank);
      std::copy_n(slice.data(), slice.bytes(), room + static_cast<std::size_t>(rank) * room_of_slice());
    }
  }
  memory_.begin(piece.task, 0);
}

/// What this rank adds up of the piece. Returns whether it then has all that it gets.
bool SharedSumsUnderWay::add_up(const Piece& piece) const {
  const Message& message = *piece.message;
  const DType dtype = message.flat_.dtype();
  const int ranks = memory_.size(), rank = memory_.rank();
  if (message.is_whole_) {
    if (gets(message)) tree_sum(in_rooms(piece, 0), dtype, piece.count, message.rule_, message.sum_);
    return true;
  }
  const auto number = static_cast<std::size_t>(rank);
  if (!message.bounds_.empty()) {
    if (const std::int64_t count = slice_of(piece, rank).count(); count > 0)
      tree_sum(in_rooms(piece, number * room_of_slice()), dtype, count, message.rule_,
               message.sum_ + bytes_of(dtype, piece.first));
    return true;
  }
  const auto bounds = even_slices(piece.count, ranks, static_cast<std::int64_t>(cache_line / size_of(dtype)));
  tree_sum_in_place(in_rooms(piece, bytes_of(dtype, bounds[number])), dtype, bounds[number + 1] - bounds[number],
                    message.rule_, message.root_.value_or(0), message.root_.value_or(ranks - 1) + 1);
  return !gets(message);
}

void SharedSumsUnderWay::take(const Piece& piece) const {
  Message& message = *piece.message;
  const DType dtype = message.flat_.dtype();
  std::copy_n(own_room(piece), bytes_of(dtype, piece.count), message.sum_ + bytes_of(dtype, piece.first));
  --message.left_;
}

/// What the piece has of a rank's slice.
TensorView SharedSumsUnderWay::slice_of(const Piece& piece, int rank) const {
  const auto number = static_cast<std::size_t>(rank);
  const std::int64_t end = piece.message->bounds_[number + 1];
  const std::int64_t first = std::min(piece.message->bounds_[number] + piece.first, end);
  return piece.message->flat_.slice(first, std::min(piece.count, end - first));
}

std::byte* SharedSumsUnderWay::own_room(const Piece& piece) const {
  return memory_.rooms_of(piece.task) + memory_.rank() * NodeMemory::stride_of_rooms();
}

/// How much of a room each slice has.
std::size_t SharedSumsUnderWay::room_of_slice() const {
  return NodeMemory::room_bytes / static_cast<std::size_t>(memory_.size()) / cache_line * cache_line;
}

HostPieces SharedSumsUnderWay::in_rooms(const Piece& piece, std::size_t first_byte) const {
  return {memory_.rooms_of(piece.task) + first_byte, NodeMemory::stride_of_rooms(), memory_.size()};
}

}  // namespace lockstep::detail
