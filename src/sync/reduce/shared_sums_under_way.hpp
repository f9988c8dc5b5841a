// Sums in the fixed tree over the ranks of one node that are made piece by piece while the ranks compute.
//
// Nothing is sent. Each rank has a few rooms in memory that all of them share. A piece passes through a room:
//   1. Each rank lays its own down.
//   2. When all have, each adds up its slice of all of them, in the tree, and writes the sum to the rooms of all ranks,
//      or of the root.
//   3. When all have, each takes the sum.
// A rank lays the next piece down in a room when all are done with step 2 of the one before. No rank waits for another:
// each does what it can in `advance`. Of S bytes, a rank copies S in, reads S, writes S and copies S out.
//
// Short messages take one step less: each rank adds up everything itself. So does a sum of which each rank gets a
// slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/comm/communicator.hpp"
#include "core/comm/shm/node_memory.hpp"
#include "sync/reduce/arithmetic.hpp"

namespace lockstep::detail {

/// Not thread-safe. The only user of the memory's tasks.
class SharedSumsUnderWay {
 public:
  /// One message.
  class Message {
   public:
    bool is_done() const { return left_ == 0; }

   private:
    friend class SharedSumsUnderWay;
    TensorView flat_;
    SumRule rule_;
    std::optional<int> root_;           ///< the only rank that gets the sum, if not all
    std::vector<std::int64_t> bounds_;  ///< of the slices of which each rank gets one; otherwise empty
    std::byte* sum_ = nullptr;          ///< where what this rank gets goes
    bool is_whole_ = false;             ///< each rank adds up everything
    std::size_t left_ = 0;              ///< pieces that are not complete
  };

  /// `memory` must outlive this object.
  explicit SharedSumsUnderWay(NodeMemory& memory) : memory_{memory} {}

  // These return at once. All ranks start the same messages in the same order. The memory must stay alive, and
  // untouched, until the message is done.

  /// The sum of `flat` by `rule` replaces `flat` on every rank.
  std::shared_ptr<const Message> start(const TensorView& flat, const SumRule& rule);

  /// The same on `root` alone. On others, `flat` stays as it is.
  std::shared_ptr<const Message> start_to_one(const TensorView& flat, const SumRule& rule, int root);

  /// This rank's slice of the sum replaces `sum`, which is not in `flat`. `flat` stays as it is.
  std::shared_ptr<const Message> start_scatter(const TensorView& flat, SliceBounds bounds, const TensorView& sum,
                                               const SumRule& rule);

  /// LOCAL, never blocks. Does what can be done. Returns whether there was something.
  bool advance();

 private:
  /// What is in a room of each rank at a time: elements of the message, or of each of its slices.
  struct Piece {
    std::shared_ptr<Message> message;
    std::int64_t first, count;
    std::uint64_t task;
  };

  std::shared_ptr<const Message> start(const TensorView& flat, const SumRule& rule, std::optional<int> root);
  void add_pieces(const std::shared_ptr<Message>& message, std::int64_t count, std::int64_t longest);
  bool may_lay_down(const Piece& piece) const;
  void lay_down(const Piece& piece) const;
  bool add_up(const Piece& piece) const;
  void take(const Piece& piece) const;

  TensorView slice_of(const Piece& piece, int rank) const;
  bool gets(const Message& message) const { return message.root_.value_or(memory_.rank()) == memory_.rank(); }
  std::byte* own_room(const Piece& piece) const;
  std::size_t room_of_slice() const;
  HostPieces in_rooms(const Piece& piece, std::size_t first_byte) const;

  NodeMemory& memory_;
  std::uint64_t tasks_ = 0;
  std::deque<Piece> to_lay_down_, to_add_up_, to_take_;  ///< in order
};

}  // namespace lockstep::detail
