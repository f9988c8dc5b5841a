// Path::two_levels: sums within each node and then over the nodes, so that data crosses the network once per node. The
// only path that calls others: in_shared_memory or by_messages in a node, by_messages and under_way between nodes.
//
// Of n ranks on m nodes, the first c ranks of each node carry a slice each, c being the ranks of the smallest node. For
// S bytes between the nodes:
//   1. Each rank publishes in the memory of its node that its tensor is complete.
//   2. When all ranks of the node have, each carrier adds up its slice over them, in the tree of the node,
//   3. converts it if another type crosses the network,
//   4. and adds it up with the same slice of the other nodes, in the tree over the nodes, by Path::under_way:
//      2 (m - 1) messages for each piece, 2 S (m - 1) / (c m) bytes of each carrier.
//   5. It writes the sum to all ranks of its node, and publishes that it is through.
// For up to short_bytes, which cost their latency:
//   1. The first rank of each node gets the sum of its node.
//   2. The first ranks add these up whole: m - 1 messages, (m - 1) S bytes of each.
//   3. Each gives the result to its node.
// A broadcast goes within the root's node, between the first ranks, and within the other nodes. The first
// half of a sum in slices is steps 1 to 4, without returning the sums of step 4 to the other nodes; the second half
// returns them, and is step 5. A sum for one rank is made as a sum for all.
//
// Where ranks bring parts of several subtrees of the shards, or the shards of a node are not one subtree, a node adds
// up its own into the largest subtrees that it holds, and brings several of them to step 4. Such a sum is not short.
//
// 16-bit floats are copied to f32 first, and go as long ones do: they are rounded once, at the end. The slices for each
// carrier are those of Jia and others, "Highly Scalable Deep Learning Training System with Mixed-Precision" (2018).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/comm/communicator.hpp"
#include "core/comm/shm/node_memory.hpp"
#include "sync/reduce/by_messages.hpp"
#include "sync/reduce/paths.hpp"
#include "sync/reduce/request.hpp"
#include "sync/reduce/shared_sums.hpp"
#include "sync/reduce/sums_under_way.hpp"

namespace lockstep::detail {

/// In memory that the ranks of a node share, no rank waits for another one: each looks now and then whether all have
/// published. Other memory waits for `wait`, and everything after it too, as ranks of all nodes send in one order. Host
/// tensors. Not thread-safe.
class TwoLevels {
 public:
  /// COLL over `all`, which must outlive this object. `node_of_rank` names several nodes. `number` is the same on every
  /// rank, and another for each such object on `all`. InvalidArgument if the backend cannot make communicators of some
  /// of its ranks, or if these cannot send while they compute.
  TwoLevels(Communicator& all, std::span<const int> node_of_rank, std::uint64_t number);

  /// Between the nodes; null on ranks that carry nothing.
  SumsUnderWay* between() { return between_ ? &*between_ : nullptr; }

  /// LOCAL. Whether these travel as one exchange, the same on every rank.
  bool takes_whole(std::span<const TensorView> tensors) const;

  /// COLL. A sum of one flat tensor, or of several that travel whole; a half of a sum in slices; or a broadcast of flat
  /// tensors.
  void run(const Request& request);

  /// COLL. The same for a sum for all ranks, or its first half. If it is long, it travels while the ranks compute.
  Work start(const Request& request);

  /// LOCAL. The slices of a carrier's place are neighbours: those of its node's sum, one for each node.
  std::vector<int> slice_owners() const;

  /// COLL over the ranks of a node. As NodeMemory::allocate.
  SharedAllocation allocate_shared(std::size_t bytes);

  /// Where a rank is: the number of its node, and its own among the ranks there.
  struct Place {
    int node, within;
  };

  /// LOCAL. The shares of the nodes whose ranks have `of_ranks`.
  Shares shares_of_nodes(const Shares& of_ranks) const { return of_ranks.over(ranks_of_nodes_); }

  struct ByNodes;

  /// A message in pieces.
  class Message {
   public:
    bool is_done() const { return left_ == 0; }
    Work::Traffic traffic() const;

   private:
    friend class TwoLevels;
    std::size_t left_ = 0;
    std::vector<std::shared_ptr<const SumsUnderWay::Message>> sent_;
    std::int64_t unsent_ = 0;  ///< bytes, about, of what this rank will send of pieces that it has not begun to send
    Tensor wide_ = {};         ///< what is summed in the place of `rounded_`, if that is of 16-bit floats
    std::optional<TensorView> rounded_ = {};
    const Subtrees* subtrees_ = nullptr;            ///< if ranks bring parts of several
    std::shared_ptr<const ByNodes> by_nodes_ = {};  ///< if nodes may have several
  };

  /// LOCAL, never blocks. Returns whether there was something to do.
  bool advance();

  /// COLL, in the order of `start`. Blocks until it is done.
  void wait(const Message& message);

 private:
  struct Piece {
    TensorView memory;
    std::vector<std::int64_t> bounds;  ///< of a slice for each rank of the node; those that carry none have empty ones
    TensorView own;                    ///< this rank's slice
    std::vector<std::int64_t> between = {};  ///< of `own`, cut into one for each node; empty if all get all of it
    std::optional<PartPlaces> places = {};   ///< of `memory`
    std::optional<DType> wire = {};
    int divisor = 1;
    SumRule between_nodes = {};
    std::shared_ptr<Message> message = {};
    std::uint64_t task = 0;
    Buffer converted = {};            ///< `own` in the type of `wire`
    std::vector<Buffer> others = {};  ///< the node's sums of its subtrees but the last, which is in `own`
    std::shared_ptr<const SumsUnderWay::Message> sum = {};

    /// `own` on another rank of the node, in the memory that they share.
    std::byte* on_rank(int rank) const {
      const NodeMemory::Place& place = *places->message;
      return place.first + rank * place.stride + (own.data() - memory.data());
    }
    /// What travels between the nodes.
    TensorView sent() const { return wire ? TensorView{converted.data(), {own.count()}, *wire} : own; }
  };

  bool carries() const { return mine_.within < carriers_; }
  static bool is_short(std::span<const TensorView> tensors);
  void in_node(const Request& request);
  void over_first_ranks(const Request& request);
  void give_to_node(std::span<const TensorView> tensors);
  void broadcast(const Request& request);
  void gather(std::span<const Sliced> messages);

  Sliced in_slices_of_node(const Sliced& message) const;
  Piece piece_of(const TensorView& memory, std::vector<std::int64_t> bounds) const;
  std::vector<Piece> pieces_of(const TensorView& flat) const;
  std::vector<Piece> pieces_of(const Sliced& message, const Sliced& of_node) const;
  std::shared_ptr<const Message> start_pieces(const Request& request);

  std::int64_t bytes_to_send(const Piece& piece) const;
  Buffer take_buffer(std::size_t bytes);
  bool can_sum(const Piece& piece) const;
  bool must_meet(const Piece& piece) const;
  void sum_own(Piece& piece);
  std::shared_ptr<const ByNodes> by_nodes(const Shares& of_ranks);
  void sum_subtrees(Piece& piece, std::span<const std::int64_t> offsets);
  void send(Piece& piece);
  void take_back(Piece& piece);
  void spread(const Piece& piece) const;
  void meet(Piece piece);
  void end(Piece piece);

  std::vector<Place> places_;
  Place mine_;
  std::vector<int> ranks_of_nodes_;
  Layout layout_;
  int carriers_;  ///< of each node
  std::unique_ptr<Communicator> node_;
  std::unique_ptr<Communicator> first_ranks_;  ///< of all nodes; null on other ranks
  /// The ranks at this rank's place on all nodes, for what travels early: each comes to it at another moment. Null
  /// unless they carry.
  std::unique_ptr<Communicator> same_place_;
  Layout node_layout_;
  NodeMemory* memory_;  ///< of the ranks of the node; null of one alone
  std::optional<SharedSums> shared_;
  ByMessages by_messages_;                      ///< in the node
  std::optional<ByMessages> over_first_ranks_;  ///< on these
  std::optional<SumsUnderWay> between_;         ///< on carriers
  Scratch packed_;
  std::optional<Shares> one_each_;           ///< of the last message whose ranks had one subtree each
  std::shared_ptr<const ByNodes> by_nodes_;  ///< of the last message that had parts
  std::vector<Buffer> free_buffers_;         ///< for `converted`: later steps allocate none
  std::uint64_t tasks_ = 0;                  ///< started
  /// Those that this rank has not begun, whose sum over the node is not made, that are between the nodes, and that
  /// other ranks of the node have not ended. In order.
  std::deque<Piece> to_begin_, to_sum_, between_nodes_, to_end_;
};

}  // namespace lockstep::detail
