// Sums over several nodes that travel while their ranks compute: each rank of a node carries a slice of its node's sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/shm/node_memory.hpp"
#include "reduce/flat_ops.hpp"
#include "reduce/shared_sums.hpp"
#include "reduce/slice_map.hpp"
#include "reduce/sums_under_way.hpp"

namespace lockstep::detail {

/// A piece of a message, with a slice for each rank of the node.
struct NodePiece {
  TensorView memory;
  std::vector<std::int64_t> bounds;  ///< of the slices
  /// Those of a carrier's slice, which is cut into one for each node: then each rank gets the sum in its own alone. If
  /// empty, every rank gets all of it.
  std::vector<std::int64_t> between = {};
  std::optional<DType> sent_as = {};  ///< between nodes, if not as it is
};

/// Where the memory of a piece is shared by the ranks of the node, no rank waits for another one: each says when its
/// tensor is complete, and looks now and then whether all are. Then it adds up its slice, sends the sum to the ranks
/// that carry the same slice on other nodes (SumsUnderWay), and writes what comes back to all. Other memory waits for
/// `wait`, and everything after it too, as ranks of all nodes send in one order. Host tensors. Not thread-safe.
class NodeSums {
 public:
  /// Some pieces, of one message.
  class Message {
   public:
    bool is_done() const { return left_ == 0; }
    Work::Traffic traffic() const;

   private:
    friend class NodeSums;
    std::size_t left_ = 0;
    std::vector<std::shared_ptr<const SumsUnderWay::Message>> sent_;
    std::int64_t unsent_ = 0;  ///< bytes, about, of what this rank will send of pieces that it has not begun to send
  };

  /// `between` is null on ranks that carry nothing. All must outlive this object.
  NodeSums(Communicator& node, Communicator* between);

  /// COLL, but returns at once, as SumsUnderWay::start.
  std::shared_ptr<const Message> start(std::vector<NodePiece> pieces);

  /// LOCAL, never blocks. Returns whether there was something to do.
  bool advance();

  /// COLL, in the order of `start`. Blocks until it is done.
  void wait(const Message& message);

 private:
  struct Piece {
    NodePiece at;
    std::shared_ptr<Message> message;
    std::uint64_t task;
    Buffer converted = {};  ///< this rank's slice in the type of `sent_as`
    std::shared_ptr<const SumsUnderWay::Message> sum = {};
  };

  std::int64_t bytes_to_send(const Piece& piece) const;
  TensorView own(const Piece& piece) const;
  TensorView converted(const Piece& piece) const;
  Buffer take_buffer(std::size_t bytes);
  bool can_sum(const Piece& piece) const;
  bool must_meet(const Piece& piece) const;
  void sum_own(const Piece& piece) const;
  void send(Piece& piece);
  void take_back(Piece& piece);
  void spread(const Piece& piece) const;
  void meet(Piece piece);
  void end(Piece piece);

  Communicator& node_;
  NodeMemory* memory_;
  std::optional<SumsUnderWay> between_;
  std::optional<SharedSums> shared_;
  Scratch received_;
  std::vector<Buffer> free_buffers_;  ///< for `converted`: later steps allocate none
  std::uint64_t tasks_ = 0;           ///< started
  /// Those that this rank has not begun, whose sum over the node is not made, that are between the nodes, and that
  /// other ranks of the node have not ended. In order.
  std::deque<Piece> to_begin_, to_sum_, between_nodes_, to_end_;
};

}  // namespace lockstep::detail
