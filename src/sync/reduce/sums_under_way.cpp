#include "sync/reduce/sums_under_way.hpp"

#include "core/base/element_type.hpp"
#include "core/comm/slices.hpp"
#include "sync/reduce/arithmetic.hpp"

namespace lockstep::detail {
namespace {

std::int64_t elements_of_piece(DType dtype) {
  return SumsUnderWay::piece_bytes / static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

SumsUnderWay::SumsUnderWay(Communicator& communicator, Messenger& messenger, Lanes lanes, Looks looks)
    : communicator_{communicator},
      messenger_{messenger},
      lanes_{lanes},
      rank_{communicator.rank()},
      size_{communicator.size()},
      most_{std::max<std::size_t>(4, bytes_under_way / piece_bytes / static_cast<std::size_t>(size_))},
      looks_{looks} {
  for (std::size_t room = most_; room > 0; --room) free_rooms_.push_back(room - 1);
}

void SumsUnderWay::measure_latency() {
  if (size_ == 1) return;
  std::byte sent{}, received{};
  Window::Seconds shortest{1};
  for (int round = 0; round < 2; ++round) {
    std::vector<Parcel> parcels(static_cast<std::size_t>(size_));
    parcels[static_cast<std::size_t>((rank_ + 1) % size_)].sent = {&sent, 1};
    parcels[static_cast<std::size_t>((rank_ + size_ - 1) % size_)].received = {&received, 1};
    const Window::Seconds begin = messenger_.now();
    messenger_.start(parcels, lanes_.to_owners).wait();
    shortest = std::min(shortest, messenger_.now() - begin);
  }
  window_.set_latency(shortest);
}

auto SumsUnderWay::start(const TensorView& flat, const SumRule& rule, const RankParts& parts)
    -> std::shared_ptr<const Message> {
  return start(flat, rule, std::nullopt, parts);
}

auto SumsUnderWay::start_to_one(const TensorView& flat, const SumRule& rule, int root)
    -> std::shared_ptr<const Message> {
  return start(flat, rule, std::optional{root}, {});
}

auto SumsUnderWay::message_of(const TensorView& flat, const RankParts& parts) -> std::shared_ptr<Message> {
  const auto message = std::make_shared<Message>();
  message->numbers_ = parts.numbers;
  for (const TensorView& part : parts.own) message->parts_.push_back(part.data() - flat.data());
  if (message->parts_.empty()) message->parts_.push_back(0);
  return message;
}

auto SumsUnderWay::start(const TensorView& flat, const SumRule& rule, std::optional<int> root, const RankParts& parts)
    -> std::shared_ptr<const Message> {
  const auto message = message_of(flat, parts);
  const auto size = static_cast<std::int64_t>(size_of(flat.dtype()));
  const std::int64_t longest = elements_of_piece(flat.dtype()) * size_;
  for (std::int64_t first = 0; first < flat.count(); first += longest) {
    Piece piece{{}, flat.dtype(), rule, Ways::both, message};
    piece.root = root;
    const auto bounds = even_slices(std::min(longest, flat.count() - first), size_);
    for (std::size_t rank = 0; rank + 1 < bounds.size(); ++rank)
      piece.slices.emplace_back(flat.data() + (first + bounds[rank]) * size,
                                static_cast<std::size_t>((bounds[rank + 1] - bounds[rank]) * size));
    add(std::move(piece));
  }
  send_more();
  return message;
}

auto SumsUnderWay::start_scatter(const TensorView& flat, SliceBounds bounds, const TensorView& sum, const SumRule& rule)
    -> std::shared_ptr<const Message> {
  return start(flat, bounds, Ways::to_owners, sum.data(), rule);
}

auto SumsUnderWay::start_scatter(const TensorView& flat, SliceBounds bounds, const SumRule& rule,
                                 const RankParts& parts) -> std::shared_ptr<const Message> {
  return start(flat, bounds, Ways::to_owners, nullptr, rule, parts);
}

auto SumsUnderWay::start_gather(const TensorView& flat, SliceBounds bounds) -> std::shared_ptr<const Message> {
  return start(flat, bounds, Ways::from_owners);
}

auto SumsUnderWay::start(const TensorView& flat, SliceBounds bounds, Ways ways, std::byte* sum, const SumRule& rule,
                         const RankParts& parts) -> std::shared_ptr<const Message> {
  const auto message = message_of(flat, parts);
  const auto size = static_cast<std::int64_t>(size_of(flat.dtype()));
  const std::int64_t most = elements_of_piece(flat.dtype());
  for (std::int64_t first = 0, longest = longest_slice(bounds); first < longest; first += most) {
    Piece piece{{}, flat.dtype(), rule, ways, message};
    for (std::size_t rank = 0; rank + 1 < bounds.size(); ++rank) {
      const std::int64_t begin = std::min(bounds[rank] + first, bounds[rank + 1]);
      piece.slices.emplace_back(flat.data() + begin * size,
                                static_cast<std::size_t>(std::min(most, bounds[rank + 1] - begin) * size));
    }
    if (sum && !own(piece).empty()) piece.sum = sum + first * size;
    add(std::move(piece));
  }
  send_more();
  return message;
}

void SumsUnderWay::add(Piece piece) {
  if (size_ == 1) return;
  parcels_.resize(static_cast<std::size_t>(size_));
  Message& message = *piece.message;
  std::size_t all = 0;
  for (const auto& slice : piece.slices) all += slice.size();
  const std::size_t mine = own(piece).size();
  ++message.left_;
  const int receivers = piece.root ? (*piece.root == rank_ ? 0 : 1) : size_ - 1;
  if (piece.ways != Ways::to_owners) message.traffic_.all += static_cast<std::int64_t>(mine) * receivers;
  if (piece.ways == Ways::from_owners) return to_all_.before.push_back(std::move(piece));
  message.traffic_.all += static_cast<std::int64_t>(all - mine) * std::ssize(message.parts_);
  ++message.to_sum_;
  to_owners_.before.push_back(std::move(piece));
}

bool SumsUnderWay::advance() {
  const auto first_has_come = [](Way& way) {
    bool has_come = !way.on.empty();
    if (has_come)
      for (Work& work : way.on.front().works) has_come &= work.advance();
    return has_come;
  };
  bool moved = false;
  while (first_has_come(to_owners_)) {
    sum_first();
    moved = true;
  }
  while (first_has_come(to_all_)) {
    complete_first();
    moved = true;
  }
  if (moved) look(looks_);
  send_more();
  return moved;
}

void SumsUnderWay::wait_for_some(const Message& message) {
  message.to_sum_ > 0 ? sum_first() : complete_first();
  look(looks_);
  send_more();
}

void SumsUnderWay::look(Looks looks) {
  window_.look(messenger_.now(), looks, std::exchange(carried_, 0), !to_owners_.on.empty() || !to_all_.on.empty());
  looks_ = looks;
}

/// Two pieces at least, so that one follows the other.
void SumsUnderWay::send_more() {
  const std::int64_t window = window_.bytes(looks_);
  const auto is_wide = [&](const Way& way) { return way.on.size() < 2 || way.bytes < window; };
  while (!to_owners_.before.empty() && !free_rooms_.empty() && is_wide(to_owners_) &&
         has_rooms_for(to_owners_.before.front()))
    send_to_owners(to_owners_.next());
  while (!to_all_.before.empty() && to_all_.on.size() < most_ && is_wide(to_all_)) send_to_all(to_all_.next());
}

/// Rooms become wider when none is in use.
bool SumsUnderWay::has_rooms_for(const Piece& piece) {
  const std::size_t bytes = static_cast<std::size_t>(number_of(piece, size_)) * stride_in_room(piece);
  if (bytes <= room_bytes_) return true;
  if (!to_owners_.on.empty()) return false;
  room_bytes_ = bytes;
  rooms_ = communicator_.allocate(most_ * room_bytes_);
  return true;
}

void SumsUnderWay::send_to_owners(Piece piece) {
  piece.room = free_rooms_.back();
  free_rooms_.pop_back();
  const std::vector<std::ptrdiff_t>& parts = piece.message->parts_;
  bool more = true;
  for (std::size_t part = 0; more; ++part) {
    more = false;
    for (int rank = 0; rank < size_; ++rank) {
      Parcel& parcel = parcels_[static_cast<std::size_t>(rank)];
      parcel = {};
      const std::span<std::byte> slice = piece.slices[static_cast<std::size_t>(rank)];
      if (part < parts.size()) parcel.sent = {slice.data() + parts[part], slice.size()};
      const int number = number_of(piece, rank) + static_cast<int>(part), last = number_of(piece, rank + 1);
      if (number < last) parcel.received = room_for(piece, number);
      more |= number + 1 < last;
    }
    piece.works.push_back(send(piece, lanes_.to_owners));
  }
  to_owners_.push(std::move(piece));
}

/// Adds up the oldest piece of those that are on the way to their owners, and waits for it if it has not come.
void SumsUnderWay::sum_first() {
  Piece piece = to_owners_.pop();
  for (Work& work : piece.works) work.wait();
  piece.works.clear();
  carried_ += piece.bytes;
  const std::span<std::byte> mine = own(piece);
  int number = number_of(piece, rank_);
  for (const std::ptrdiff_t part : piece.message->parts_)
    std::copy_n(mine.data() + part, mine.size(), room_for(piece, number++).data());
  tree_sum(
      HostPieces{room_for(piece, 0).data(), static_cast<std::int64_t>(stride_in_room(piece)), number_of(piece, size_)},
      piece.dtype, static_cast<std::int64_t>(mine.size() / size_of(piece.dtype)), piece.rule,
      piece.sum ? piece.sum : mine.data());
  free_rooms_.push_back(piece.room);
  --piece.message->to_sum_;
  if (piece.ways == Ways::both) {
    to_all_.before.push_back(std::move(piece));
  } else {
    --piece.message->left_;
  }
}

void SumsUnderWay::send_to_all(Piece piece) {
  piece.bytes = 0;
  for (int rank = 0; rank < size_; ++rank) {
    Parcel& parcel = parcels_[static_cast<std::size_t>(rank)];
    parcel = {};
    if (piece.root.value_or(rank) == rank) parcel.sent = own(piece);
    if (piece.root.value_or(rank_) == rank_) parcel.received = piece.slices[static_cast<std::size_t>(rank)];
  }
  piece.works.push_back(send(piece, lanes_.from_owners));
  to_all_.push(std::move(piece));
}

void SumsUnderWay::complete_first() {
  Piece piece = to_all_.pop();
  piece.works.front().wait();
  carried_ += piece.bytes;
  --piece.message->left_;
}

Work SumsUnderWay::send(Piece& piece, Messenger::Lane lane) {
  parcels_[static_cast<std::size_t>(rank_)] = {};
  std::int64_t sent = 0, received = 0;
  for (const Parcel& parcel : parcels_) {
    sent += std::ssize(parcel.sent);
    received += std::ssize(parcel.received);
  }
  piece.message->traffic_.begun += sent;
  piece.bytes += std::max(sent, received);
  return messenger_.start(parcels_, lane);
}

/// Where the part of this rank's slice lies that has this number.
std::span<std::byte> SumsUnderWay::room_for(const Piece& piece, int part) {
  const std::size_t place = piece.room * room_bytes_ + static_cast<std::size_t>(part) * stride_in_room(piece);
  return {static_cast<std::byte*>(rooms_.data()) + place, own(piece).size()};
}

}  // namespace lockstep::detail
