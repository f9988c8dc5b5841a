#include "sync/reduce/two_levels.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/comm/messenger.hpp"
#include "core/comm/slices.hpp"
#include "core/tensor/convert.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/dispatch.hpp"

namespace lockstep::detail {
namespace {

/// Nodes are numbered in the order of their first ranks, and the ranks of a node in rank order.
std::vector<TwoLevels::Place> places_of(std::span<const int> node_of_rank) {
  std::map<int, TwoLevels::Place> next;  // by the caller's number of a node: the position of its next rank
  std::vector<TwoLevels::Place> places;
  for (const int node : node_of_rank) {
    auto& place = next.try_emplace(node, TwoLevels::Place{static_cast<int>(next.size()), 0}).first->second;
    places.push_back(place);
    ++place.within;
  }
  return places;
}

/// How many ranks of each node carry. If the n-th ranks of the nodes are in another order than the nodes, they would
/// add up in another one: then only the first ranks do.
int carriers_of(std::span<const TwoLevels::Place> places, int ranks_of_node) {
  std::map<int, int> last;  // by place within a node: the last node that has a rank there
  for (const auto& [node, within] : places)
    if (std::exchange(last[within], node) > node) return 1;
  return ranks_of_node;
}

/// The communicator of the ranks whose place `belongs`; null on others.
template <class Belongs>
std::unique_ptr<Communicator> plane_of(Communicator& all, std::span<const TwoLevels::Place> places, std::uint64_t key,
                                       Belongs&& belongs) {
  if (!belongs(places[static_cast<std::size_t>(all.rank())])) return nullptr;
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < places.size(); ++rank)
    if (belongs(places[rank])) ranks.push_back(static_cast<int>(rank));
  // Even, as the keys of groups are odd, and none that a backend has for planes of its own.
  return all.subset(ranks, 2 * (8 + key));
}

}  // namespace

/// What the nodes make of the subtrees of their ranks.
struct TwoLevels::ByNodes {
  Shares of_ranks, of_nodes;
  std::vector<std::uint8_t> additions = {};  ///< over the nodes' subtrees
  std::span<const int> numbers = {};         ///< Shares::numbers of this node's ranks
  /// Each subtree of this node: of so many parts of its ranks.
  struct Subtree {
    int parts;
    std::vector<std::uint8_t> additions;
  };
  std::vector<Subtree> own = {};
};

TwoLevels::TwoLevels(Communicator& all, std::span<const int> node_of_rank, std::uint64_t number)
    : places_{places_of(node_of_rank)},
      mine_{places_[static_cast<std::size_t>(all.rank())]},
      layout_{layout_of(all, node_of_rank)},
      carriers_{carriers_of(places_, layout_.ranks_of_node)},
      node_{plane_of(all, places_, 3 * number, [&](const Place& each) { return each.node == mine_.node; })},
      first_ranks_{plane_of(all, places_, 3 * number + 1, [](const Place& each) { return each.within == 0; })},
      same_place_{plane_of(all, places_, 3 * number + 2,
                           [&](const Place& each) { return carries() && each.within == mine_.within; })},
      node_layout_{layout_of(*node_, std::vector<int>(static_cast<std::size_t>(node_->size())))},
      memory_{node_->size() > 1 ? node_->node_memory() : nullptr},
      by_messages_{*node_} {
  ranks_of_nodes_.resize(static_cast<std::size_t>(layout_.nodes));
  for (const Place& place : places_) ++ranks_of_nodes_[static_cast<std::size_t>(place.node)];
  if (memory_) shared_.emplace(*memory_);
  if (first_ranks_) over_first_ranks_.emplace(*first_ranks_);
  if (!same_place_) return;
  if (!same_place_->messenger())
    throw InvalidArgument{fmt::format("ranks of the backend '{}' cannot send while they compute", all.backend())};
  between_.emplace(*same_place_, *same_place_->messenger());
}

std::vector<int> TwoLevels::slice_owners() const {
  std::vector<int> owners(static_cast<std::size_t>(carriers_ * layout_.nodes));
  for (std::size_t rank = 0; rank < places_.size(); ++rank)
    if (const Place& place = places_[rank]; place.within < carriers_) {
      const int slice = place.within * layout_.nodes + place.node;
      owners[static_cast<std::size_t>(slice)] = static_cast<int>(rank);
    }
  return owners;
}

SharedAllocation TwoLevels::allocate_shared(std::size_t bytes) {
  return memory_ ? memory_->allocate(bytes) : SharedAllocation{};
}

/// 16-bit floats need wider memory.
bool TwoLevels::is_short(std::span<const TensorView> tensors) {
  return padded(tensors) <= short_bytes &&
         std::ranges::none_of(tensors, [](const TensorView& each) { return is_16_bit_float(each.dtype()); });
}

/// Between the nodes: within them, they may be of different sizes.
bool TwoLevels::takes_whole(std::span<const TensorView> tensors) const {
  return is_short(tensors) && padded(tensors) * layout_.nodes <= whole_bytes;
}

void TwoLevels::run(const Request& request) {
  const SumsUnderWay::Waiting waiting{between()};
  if (request.kind == Request::Kind::broadcast) return broadcast(request);
  if (request.kind == Request::Kind::to_all) return gather(request.slices);
  start(request).wait();
}

Work TwoLevels::start(const Request& request) {
  if (!request.tensors.empty() && !request.wire && !request.subtrees && is_short(request.tensors))
    return later(request, [this](const Request& kept) { over_first_ranks(kept); });
  return work_of(*this, {start_pieces(request)});
}

// Among the ranks of the node, and the first ranks of all nodes.

void TwoLevels::in_node(const Request& request) {
  if (node_->size() == 1) return;
  const Path path = path_of({.layout = node_layout_, .kind = request.kind});
  path == Path::in_shared_memory ? shared_->run(request) : by_messages_.run(request);
}

void TwoLevels::over_first_ranks(const Request& request) {
  const std::int64_t bytes = padded(request.tensors);
  const bool is_whole = shared_ ? shared_->takes_whole(bytes) : by_messages_.takes_whole(bytes);
  const std::size_t at_once = is_whole ? request.tensors.size() : 1;
  for (std::size_t i = 0; i < request.tensors.size(); i += at_once)
    in_node({.kind = Request::Kind::reduce, .tensors = request.tensors.subspan(i, at_once)});
  if (over_first_ranks_) {
    over_first_ranks_->run(
        {.kind = Request::Kind::all_reduce, .tensors = request.tensors, .additions = request.additions});
    for (const TensorView& sum : request.tensors) divide(sum, request.divisor(layout_.ranks), Stream::host());
  }
  give_to_node(request.tensors);
}

/// What the first rank of the node has, in one message.
void TwoLevels::give_to_node(std::span<const TensorView> tensors) {
  std::vector<TensorView> bytes;
  for (const TensorView& tensor : tensors)
    bytes.push_back({tensor.data(), {static_cast<std::int64_t>(tensor.bytes())}, DType::u8});
  if (bytes.empty()) return;
  const detail::Message message{std::move(bytes), *node_, packed_};
  in_node({.kind = Request::Kind::broadcast, .tensors = {&message.flat(), 1}});
  message.unpack();
}

void TwoLevels::broadcast(const Request& request) {
  const Place from = places_[static_cast<std::size_t>(request.root)];
  const bool has_it = mine_.node == from.node;
  Request of_node = request, of_nodes = request;
  of_node.root = has_it ? from.within : 0;
  of_nodes.root = from.node;
  if (has_it) in_node(of_node);
  if (over_first_ranks_) over_first_ranks_->run(of_nodes);
  if (!has_it) in_node(of_node);
}

// Messages in pieces.

auto TwoLevels::piece_of(const TensorView& memory, std::vector<std::int64_t> bounds) const -> Piece {
  const auto rank = static_cast<std::size_t>(mine_.within);
  const TensorView own = memory.slice(bounds[rank], bounds[rank + 1] - bounds[rank]);
  return {memory, std::move(bounds), own};
}

/// Cut alike on nodes of any size.
auto TwoLevels::pieces_of(const TensorView& flat) const -> std::vector<Piece> {
  std::vector<Piece> pieces;
  for_each_bucket(flat, bucket_bytes, [&](const TensorView& bucket) {
    std::vector<std::int64_t> bounds = even_slices(bucket.count(), carriers_);
    bounds.resize(static_cast<std::size_t>(node_->size()) + 1, bucket.count());
    pieces.push_back(piece_of(bucket, std::move(bounds)));
  });
  return pieces;
}

/// The slices of the node's ranks, each of which is a carrier's for all nodes.
Sliced TwoLevels::in_slices_of_node(const Sliced& message) const {
  std::vector<std::int64_t> bounds;  // of all pieces
  for (std::size_t piece = 0; piece < message.slices->pieces(); ++piece) {
    const SliceBounds all = message.slices->bounds(piece);
    for (int rank = 0; rank <= node_->size(); ++rank) {
      const int slice = std::min(rank, carriers_) * layout_.nodes;
      bounds.push_back(all[static_cast<std::size_t>(slice)]);
    }
  }
  return {message.memory, std::make_shared<const SliceMap>(std::move(bounds), owners_in_order(node_->size())),
          message.through};
}

/// `message` is cut into a slice for each carrier, as is `of_node`, and this into one for each node.
auto TwoLevels::pieces_of(const Sliced& message, const Sliced& of_node) const -> std::vector<Piece> {
  const auto nodes = static_cast<std::size_t>(layout_.nodes), within = static_cast<std::size_t>(mine_.within);
  std::vector<Piece> pieces;
  for_each_piece(of_node, [&](const TensorView& memory, std::vector<std::int64_t> bounds) {
    Piece piece = piece_of(memory, std::move(bounds));
    piece.between.resize(nodes + 1);
    if (carries()) piece.between = from_zero(message.slices->bounds(pieces.size()).subspan(within * nodes, nodes + 1));
    pieces.push_back(std::move(piece));
  });
  return pieces;
}

auto TwoLevels::start_pieces(const Request& request) -> std::shared_ptr<const Message> {
  const auto message = std::make_shared<Message>();
  if (request.subtrees) {
    message->subtrees_ = request.subtrees;
    message->by_nodes_ = by_nodes(request.subtrees->shares());
  } else if (request.nodes_have_subtrees) {
    if (!one_each_ || one_each_->shards() != request.shards) one_each_.emplace(request.shards, layout_.ranks);
    message->by_nodes_ = by_nodes(*one_each_);
  }
  std::vector<Piece> pieces;
  if (!request.slices.empty()) {
    pieces = pieces_of(request.slices.front(), in_slices_of_node(request.slices.front()));
  } else if (const TensorView& flat = request.tensors.front(); is_16_bit_float(flat.dtype())) {
    message->rounded_ = flat;
    message->wide_ = Tensor::uninitialised(DType::f32, {flat.count()});
    convert(flat, message->wide_.view());
    pieces = pieces_of(message->wide_.view());
  } else {
    pieces = pieces_of(flat);
  }
  for (Piece& piece : pieces) {
    piece.wire = request.wire;
    piece.divisor = request.divisor(layout_.ranks);
    piece.between_nodes = {.additions = message->by_nodes_ ? message->by_nodes_->additions : request.additions};
    piece.message = message;
    piece.task = ++tasks_;
    ++message->left_;
    if (between_) message->unsent_ += bytes_to_send(piece);
    to_begin_.push_back(std::move(piece));
  }
  (void)advance();
  return message;
}

bool TwoLevels::advance() {
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
      piece.places.emplace(*memory_, piece.memory, piece.message->subtrees_);
      memory_->begin(piece.task, piece.places->word);
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
    if (node_->size() > 1 && piece.between.empty()) spread(piece);
    end(std::move(piece));
  }
  while (!to_end_.empty() && (!memory_ || memory_->ended(to_end_.front().task))) {
    Message& message = *take(to_end_).message;
    if (--message.left_ == 0 && message.rounded_) convert(message.wide_.view(), *message.rounded_);
  }
  return moved;
}

void TwoLevels::wait(const Message& message) {
  const auto is_next = [&](const std::deque<Piece>& in) { return !in.empty() && in.front().message.get() == &message; };
  const SumsUnderWay::Waiting waiting{between()};
  while (!message.is_done()) {
    if (advance()) continue;
    // The others of the node need not come to a later message before this one has ended for them.
    if (is_next(to_sum_) && between_nodes_.empty() && must_meet(to_sum_.front())) {
      Piece piece = std::move(to_sum_.front());
      to_sum_.pop_front();
      meet(std::move(piece));
    } else if (is_next(between_nodes_)) {
      between_->wait_for_some(*between_nodes_.front().sum);
    } else {
      std::this_thread::yield();  // for ranks of this node
    }
  }
}

// What a rank does with a piece.

Work::Traffic TwoLevels::Message::traffic() const {
  Work::Traffic traffic{.begun = 0, .all = unsent_};
  for (const auto& sum : sent_) traffic += sum->traffic();
  return traffic;
}

/// What others have of this rank's slice, for each subtree of the node, and once more to send the sum.
std::int64_t TwoLevels::bytes_to_send(const Piece& piece) const {
  const std::int64_t subtrees = piece.message->by_nodes_ ? std::ssize(piece.message->by_nodes_->own) : 1;
  const auto size = static_cast<std::int64_t>(size_of(piece.wire.value_or(piece.own.dtype())));
  return piece.own.count() * size * (subtrees + (piece.between.empty() ? 1 : 0)) * (layout_.nodes - 1) / layout_.nodes;
}

Buffer TwoLevels::take_buffer(std::size_t bytes) {
  const auto found = std::ranges::find_if(free_buffers_, [bytes](const Buffer& each) { return each.bytes() >= bytes; });
  if (found == free_buffers_.end()) return node_->allocate(bytes);
  Buffer buffer = std::move(*found);
  free_buffers_.erase(found);
  return buffer;
}

/// Whether all ranks of the node have the piece complete, where this rank reaches it.
bool TwoLevels::can_sum(const Piece& piece) const {
  if (node_->size() == 1) return true;
  return piece.places && piece.places->message && memory_->begun(piece.task) == NodeMemory::Begun::with_one_word;
}

/// Whether the sum over the node needs fences or messages, at which its ranks wait for each other.
bool TwoLevels::must_meet(const Piece& piece) const {
  if (!memory_) return node_->size() > 1;
  return memory_->begun(piece.task) != NodeMemory::Begun::not_by_all && !can_sum(piece);
}

void TwoLevels::sum_own(Piece& piece) {
  if (piece.own.count() == 0) return;
  if (const auto& by_nodes = piece.message->by_nodes_) {
    std::vector<std::int64_t> offsets = piece.places->offsets(by_nodes->numbers);
    for (std::int64_t& offset : offsets) offset += piece.on_rank(0) - piece.own.data();
    return sum_subtrees(piece, offsets);
  }
  if (node_->size() == 1) return;
  tree_sum_in_place({piece.on_rank(0), piece.places->message->stride, node_->size()}, piece.own.dtype(),
                    piece.own.count(), {}, mine_.within, mine_.within + 1);
}

auto TwoLevels::by_nodes(const Shares& of_ranks) -> std::shared_ptr<const ByNodes> {
  if (by_nodes_ && by_nodes_->of_ranks == of_ranks) return by_nodes_;
  const auto made = std::make_shared<ByNodes>(ByNodes{of_ranks, shares_of_nodes(of_ranks)});
  made->additions = made->of_nodes.additions();
  const auto first = std::ranges::find(places_, mine_.node, &Place::node) - places_.begin();
  made->numbers =
      made->of_ranks.numbers().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(node_->size()) + 1);
  int begin = made->numbers.front();
  for (const Range& subtree : made->of_nodes.subtrees_of(mine_.node)) {
    const auto parts = of_ranks.subtrees().subspan(static_cast<std::size_t>(begin));
    const auto count = static_cast<int>(std::ranges::find(parts, subtree.last, &Range::last) - parts.begin()) + 1;
    made->own.push_back({count, of_ranks.additions_in(begin, begin + count)});
    begin += count;
  }
  return by_nodes_ = made;
}

/// Adds up the parts of the node's ranks, which begin so far behind this rank's slice.
void TwoLevels::sum_subtrees(Piece& piece, std::span<const std::int64_t> offsets) {
  const TensorView& own = piece.own;
  for (const auto& [count, additions] : piece.message->by_nodes_->own) {
    const HostPieces parts{own.data(), 0, count, offsets.first(static_cast<std::size_t>(count))};
    offsets = offsets.subspan(static_cast<std::size_t>(count));
    if (offsets.empty()) return tree_sum_in_place(parts, own.dtype(), own.count(), {.additions = additions}, 0, 1);
    tree_sum(parts, own.dtype(), own.count(), {.additions = additions},
             static_cast<std::byte*>(piece.others.emplace_back(take_buffer(own.bytes())).data()));
  }
}

/// This rank's slice of the node's sum, if it carries one.
void TwoLevels::send(Piece& piece) {
  if (piece.own.count() == 0) return;
  if (piece.wire) {
    piece.converted = take_buffer(static_cast<std::size_t>(piece.own.count()) * size_of(*piece.wire));
    convert(piece.own, piece.sent());
  }
  const TensorView sent = piece.sent();
  RankParts parts;
  if (piece.message->by_nodes_) {
    for (const Buffer& other : piece.others)
      parts.own.push_back({static_cast<std::byte*>(other.data()), sent.shape(), sent.dtype()});
    parts.own.push_back(sent);
    parts.numbers = piece.message->by_nodes_->of_nodes.numbers();
  }
  piece.sum = piece.between.empty() ? between_->start(sent, piece.between_nodes, parts)
                                    : between_->start_scatter(sent, piece.between, piece.between_nodes, parts);
  piece.message->unsent_ -= bytes_to_send(piece);
  piece.message->sent_.push_back(piece.sum);
}

/// The sum, or this rank's slice of it, from the type in which it was sent.
void TwoLevels::take_back(Piece& piece) {
  if (!piece.sum) return;
  TensorView mine = piece.own, sent = piece.sent();
  if (!piece.between.empty()) {
    const auto node = static_cast<std::size_t>(mine_.node);
    const std::int64_t first = piece.between[node], count = piece.between[node + 1] - first;
    mine = mine.slice(first, count);
    sent = sent.slice(first, count);
  }
  if (piece.wire) {
    convert(sent, mine);
    free_buffers_.push_back(std::move(piece.converted));
  }
  for (Buffer& other : piece.others) free_buffers_.push_back(std::move(other));
  divide(mine, piece.divisor, Stream::host());
}

/// Writes this rank's slice to the other ranks of the node. None of them reads it before all have ended.
void TwoLevels::spread(const Piece& piece) const {
  if (piece.own.count() == 0) return;
  for (int other = 0; other < node_->size(); ++other)
    if (other != mine_.within) std::memcpy(piece.on_rank(other), piece.own.data(), piece.own.bytes());
}

/// All of a piece, at once, on all ranks of the node.
void TwoLevels::meet(Piece piece) {
  const Sliced message{piece.memory, std::make_shared<const SliceMap>(piece.bounds, owners_in_order(node_->size()))};
  if (const auto& by_nodes = piece.message->by_nodes_) {
    const Subtrees* const subtrees = piece.message->subtrees_;
    const auto parts = subtrees ? subtrees->parts_of(piece.memory) : std::vector{piece.memory};
    const auto offsets = by_messages_.exchange_parts(piece.memory, parts, by_nodes->numbers, piece.bounds);
    if (piece.own.count() > 0) sum_subtrees(piece, offsets);
  } else {
    in_node({.kind = Request::Kind::to_owners, .slices = {&message, 1}});
  }
  send(piece);
  if (piece.sum) between_->wait(*piece.sum);
  take_back(piece);
  if (piece.between.empty()) in_node({.kind = Request::Kind::to_all, .slices = {&message, 1}});
  end(std::move(piece));
}

void TwoLevels::end(Piece piece) {
  if (memory_) memory_->end(piece.task);
  to_end_.push_back(std::move(piece));
}

/// The second half of sums: between the nodes, and then within them.
void TwoLevels::gather(std::span<const Sliced> messages) {
  std::vector<Sliced> of_node;
  std::vector<std::shared_ptr<const SumsUnderWay::Message>> sent;
  for (const Sliced& message : messages) {
    of_node.push_back(in_slices_of_node(message));
    for (const Piece& piece : pieces_of(message, of_node.back()))
      if (piece.own.count() > 0) sent.push_back(between_->start_gather(piece.own, piece.between));
  }
  for (const auto& each : sent) between_->wait(*each);
  in_node({.kind = Request::Kind::to_all, .slices = of_node});
}

}  // namespace lockstep::detail
