#include "reduce/node_sums.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/element_type.hpp"
#include "comm/messenger.hpp"
#include "reduce/arithmetic.hpp"
#include "tensor/convert.hpp"

namespace lockstep::detail {
namespace {

/// A piece of which each rank of a node has a slice, as a message.
Sliced in_node(const NodePiece& piece) {
  return {piece.memory,
          std::make_shared<const SliceMap>(piece.bounds, owners_in_order(static_cast<int>(piece.bounds.size()) - 1))};
}

}  // namespace

Work::Traffic NodeSums::Message::traffic() const {
  Work::Traffic traffic{.begun = 0, .all = unsent_};
  for (const auto& sum : sent_) traffic += sum->traffic();
  return traffic;
}

NodeSums::NodeSums(Communicator& node, Communicator* between)
    : node_{node}, memory_{node.size() > 1 ? node.node_memory() : nullptr} {
  if (between) between_.emplace(*between, *between->messenger());
  if (memory_) shared_.emplace(*memory_);
}

std::shared_ptr<const NodeSums::Message> NodeSums::start(std::vector<NodePiece> pieces) {
  const auto message = std::make_shared<Message>();
  for (NodePiece& each : pieces) {
    Piece piece{std::move(each), message, ++tasks_};
    ++message->left_;
    if (between_) message->unsent_ += bytes_to_send(piece);
    to_begin_.push_back(std::move(piece));
  }
  (void)advance();
  return message;
}

/// Twice or once what others have of this rank's slice.
std::int64_t NodeSums::bytes_to_send(const Piece& piece) const {
  const TensorView slice = own(piece);
  const auto size = static_cast<std::int64_t>(size_of(piece.at.sent_as.value_or(slice.dtype())));
  return slice.count() * size * (piece.at.between.empty() ? 2 : 1) * (between_->ranks() - 1) / between_->ranks();
}

bool NodeSums::advance() {
  bool moved = false;
  const auto take = [&moved](std::deque<Piece>& from) {
    moved = true;
    Piece piece = std::move(from.front());
    from.pop_front();
    return piece;
  };
  while (!to_begin_.empty() && (!memory_ || memory_->may_begin(to_begin_.front().task))) {
    Piece piece = take(to_begin_);
    if (memory_) {
      const auto place = memory_->place_of(piece.at.memory.data(), piece.at.memory.bytes());
      memory_->begin(piece.task, place ? place->word : 0);
    }
    to_sum_.push_back(std::move(piece));
  }
  while (!to_sum_.empty() && can_sum(to_sum_.front())) {
    Piece piece = take(to_sum_);
    sum_own(piece);
    send(piece);
    between_nodes_.push_back(std::move(piece));
  }
  if (between_) moved |= between_->advance();
  while (!between_nodes_.empty() && (!between_nodes_.front().sum || between_nodes_.front().sum->is_done())) {
    Piece piece = take(between_nodes_);
    take_back(piece);
    if (node_.size() > 1 && piece.at.between.empty()) spread(piece);
    end(std::move(piece));
  }
  while (!to_end_.empty() && (!memory_ || memory_->ended(to_end_.front().task))) --take(to_end_).message->left_;
  return moved;
}

void NodeSums::wait(const Message& message) {
  while (!message.is_done()) {
    if (advance()) continue;
    // The others of the node need not come to a later message before this one has ended for them.
    if (!to_sum_.empty() && to_sum_.front().message.get() == &message && between_nodes_.empty() &&
        must_meet(to_sum_.front())) {
      Piece piece = std::move(to_sum_.front());
      to_sum_.pop_front();
      meet(std::move(piece));
    } else if (!between_nodes_.empty() && between_nodes_.front().message.get() == &message) {
      between_->wait_for_some(*between_nodes_.front().sum);
    } else {
      std::this_thread::yield();  // for ranks of this node
    }
  }
}

TensorView NodeSums::own(const Piece& piece) const {
  const auto rank = static_cast<std::size_t>(node_.rank());
  return piece.at.memory.slice(piece.at.bounds[rank], piece.at.bounds[rank + 1] - piece.at.bounds[rank]);
}

TensorView NodeSums::converted(const Piece& piece) const {
  return {piece.converted.data(), {own(piece).count()}, *piece.at.sent_as};
}

Buffer NodeSums::take_buffer(std::size_t bytes) {
  const auto found = std::ranges::find_if(free_buffers_, [bytes](const Buffer& each) { return each.bytes() >= bytes; });
  if (found == free_buffers_.end()) return node_.allocate(bytes);
  Buffer buffer = std::move(*found);
  free_buffers_.erase(found);
  return buffer;
}

/// Whether all ranks of the node have the piece complete, where this rank reaches it.
bool NodeSums::can_sum(const Piece& piece) const {
  if (node_.size() == 1) return true;
  return memory_ && memory_->begun(piece.task) == NodeMemory::Begun::with_one_word &&
         memory_->place_of(piece.at.memory.data(), piece.at.memory.bytes());
}

/// Whether the node's sum needs fences or messages, at which its ranks wait for each other.
bool NodeSums::must_meet(const Piece& piece) const {
  if (!memory_) return node_.size() > 1;
  return memory_->begun(piece.task) != NodeMemory::Begun::not_by_all && !can_sum(piece);
}

void NodeSums::sum_own(const Piece& piece) const {
  const TensorView mine = own(piece);
  if (node_.size() == 1 || mine.count() == 0) return;
  const auto place = memory_->place_of(mine.data(), mine.bytes());
  tree_sum_in_place({place->first, place->stride, node_.size()}, mine.dtype(), mine.count(), 1, node_.rank(),
                    node_.rank() + 1);
}

/// This rank's slice of the node's sum, if it carries one.
void NodeSums::send(Piece& piece) {
  const TensorView mine = own(piece);
  if (mine.count() == 0) return;
  TensorView sent = mine;
  if (piece.at.sent_as) {
    piece.converted = take_buffer(static_cast<std::size_t>(mine.count()) * size_of(*piece.at.sent_as));
    sent = converted(piece);
    convert(mine, sent);
  }
  piece.sum = piece.at.between.empty() ? between_->start(sent) : between_->start_scatter(sent, piece.at.between);
  piece.message->unsent_ -= bytes_to_send(piece);
  piece.message->sent_.push_back(piece.sum);
}

/// The sum, or this rank's slice of it, from the type in which it was sent.
void NodeSums::take_back(Piece& piece) {
  if (!piece.sum || !piece.at.sent_as) return;
  const TensorView mine = own(piece), sent = converted(piece);
  std::int64_t first = 0, count = mine.count();
  if (!piece.at.between.empty()) {
    const auto rank = static_cast<std::size_t>(between_->rank());
    first = piece.at.between[rank];
    count = piece.at.between[rank + 1] - first;
  }
  convert(sent.slice(first, count), mine.slice(first, count));
  free_buffers_.push_back(std::move(piece.converted));
}

/// Writes this rank's slice to the other ranks of the node. None of them reads it before all have ended.
void NodeSums::spread(const Piece& piece) const {
  const TensorView mine = own(piece);
  if (mine.count() == 0) return;
  const auto place = memory_->place_of(mine.data(), mine.bytes());
  for (int other = 0; other < node_.size(); ++other)
    if (other != node_.rank()) std::memcpy(place->first + other * place->stride, mine.data(), mine.bytes());
}

/// All of a piece, at once, on all ranks of the node.
void NodeSums::meet(Piece piece) {
  const Sliced message = in_node(piece.at);
  shared_ ? shared_->sum_own(message) : sum_own_slice(node_, received_, piece.at.memory, piece.at.bounds);
  send(piece);
  if (piece.sum) between_->wait(*piece.sum);
  take_back(piece);
  if (piece.at.between.empty()) {
    shared_ ? shared_->spread({&message, 1}) : node_.all_gather(piece.at.memory, piece.at.bounds).wait();
  }
  end(std::move(piece));
}

void NodeSums::end(Piece piece) {
  if (memory_) memory_->end(piece.task);
  to_end_.push_back(std::move(piece));
}

}  // namespace lockstep::detail
