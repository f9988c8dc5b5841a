// Sums over the ranks of a group that are made piece by piece while the ranks compute.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/comm/communicator.hpp"
#include "core/comm/messenger.hpp"
#include "core/device/device.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/window.hpp"

namespace lockstep::detail {

/// What the ranks bring to a message, if some bring several parts: this rank's in their order, each like the message,
/// which is one of them; and where each rank's begin in the tree (Shares::numbers), which must stay as long as the
/// message. If empty, each rank brings its message.
struct RankParts {
  std::vector<TensorView> own = {};
  std::span<const int> numbers = {};
};

/// Each rank has a slice of every piece. A piece travels twice: every rank sends each other rank its slice, adds up
/// those that it gets, in the tree of fixed_order_sum, and sends the sum to all. As soon as it has added up a piece, it
/// sends it on, while others are still coming. Host tensors. Not thread-safe.
class SumsUnderWay {
 public:
  /// How much of the messages is under way at a time, each way, at most: as much as a link of 1 Gbit/s carries in 30
  /// ms, for which a rank may compute without a look at its messages.
  static constexpr std::int64_t bytes_under_way = 4 << 20;

  /// Of each slice, what travels at once.
  static constexpr std::int64_t piece_bytes = 16 << 10;
  static_assert(piece_bytes <= Messenger::piece_bytes);

  /// One message.
  class Message {
   public:
    bool is_done() const { return left_ == 0; }
    Work::Traffic traffic() const { return traffic_; }

   private:
    friend class SumsUnderWay;
    std::size_t to_sum_ = 0;             ///< pieces of which this rank does not have its slice's sum
    std::size_t left_ = 0;               ///< pieces that are not complete
    std::vector<std::ptrdiff_t> parts_;  ///< where this rank's begin behind the message, in bytes
    std::span<const int> numbers_;       ///< RankParts
    Work::Traffic traffic_;
  };

  /// Those of the two ways of a piece.
  struct Lanes {
    Messenger::Lane to_owners, from_owners;
  };

  /// Both must outlive this object. `messenger` is the communicator's. Others of this communicator have other lanes.
  /// `looks` says how soon `advance` is called again, where nobody waits.
  SumsUnderWay(Communicator& communicator, Messenger& messenger,
               Lanes lanes = {Messenger::Lane::first, Messenger::Lane::second},
               Looks looks = Looks::between_computations);

  /// COLL. Blocks for two messages to a neighbour.
  void measure_latency();

  /// While there is one, its rank does nothing but wait.
  class Waiting {
   public:
    /// None of none.
    explicit Waiting(SumsUnderWay* sums) : sums_{sums} {
      if (!sums) return;
      before_ = sums->looks_;
      sums->look(Looks::while_waiting);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
      if (sums_) sums_->look(before_);
    }

   private:
    SumsUnderWay* sums_;
    Looks before_ = Looks::between_computations;
  };

  int rank() const { return rank_; }
  int ranks() const { return size_; }

  // These return at once. All ranks start the same messages in the same order. The memory must stay alive, and
  // untouched, until the message is done.

  /// The sum of `flat` by `rule` replaces `flat` on every rank.
  std::shared_ptr<const Message> start(const TensorView& flat, const SumRule& rule = {}, const RankParts& parts = {});

  /// The same on `root` alone. On others, `flat` is unspecified afterwards.
  std::shared_ptr<const Message> start_to_one(const TensorView& flat, const SumRule& rule, int root);

  /// This rank's slice of the sum replaces `sum`, which is not in `flat`. `flat` stays as it is.
  std::shared_ptr<const Message> start_scatter(const TensorView& flat, SliceBounds bounds, const TensorView& sum,
                                               const SumRule& rule = {});

  /// The same in place: it replaces this rank's slice.
  std::shared_ptr<const Message> start_scatter(const TensorView& flat, SliceBounds bounds, const SumRule& rule = {},
                                               const RankParts& parts = {});

  /// The ranks' slices replace everyone's. Not while other messages are under way.
  std::shared_ptr<const Message> start_gather(const TensorView& flat, SliceBounds bounds);

  /// LOCAL, never blocks. Adds up what has come in, and sends what can be sent. Returns whether there was something to
  /// do.
  bool advance();

  /// LOCAL. Blocks until a piece that `message`, which is not done, waits for has arrived, and moves it on.
  void wait_for_some(const Message& message);

  /// LOCAL. Blocks until `message` is done. Others move on meanwhile.
  void wait(const Message& message) {
    const Waiting waiting{this};
    while (!message.is_done())
      if (!advance()) wait_for_some(message);
  }

 private:
  enum class Ways : std::uint8_t { both, to_owners, from_owners };

  /// Of each slice of a message's memory, as many bytes as are sent at once.
  struct Piece {
    std::vector<std::span<std::byte>> slices;  ///< by rank
    DType dtype;
    SumRule rule;
    Ways ways;
    std::shared_ptr<Message> message;
    std::size_t room = 0;          ///< for what comes to this rank on the way to the owners
    std::vector<Work> works = {};  ///< of each part in turn; of one on the way to all
    std::optional<int> root = {};  ///< the only one to which the owners send, if not all
    std::byte* sum = nullptr;      ///< where the sum of this rank's slice goes, if not in `slices`
    std::int64_t bytes = 0;        ///< on its way, of what this rank sends or of what it receives, if that is more
  };

  std::shared_ptr<const Message> start(const TensorView& flat, const SumRule& rule, std::optional<int> root,
                                       const RankParts& parts);
  std::shared_ptr<const Message> start(const TensorView& flat, SliceBounds bounds, Ways ways, std::byte* sum = nullptr,
                                       const SumRule& rule = {}, const RankParts& parts = {});
  void add(Piece piece);
  void send_more();
  void send_to_owners(Piece piece);
  void sum_first();
  void send_to_all(Piece piece);
  void complete_first();
  Work send(Piece& piece, Messenger::Lane lane);
  void look(Looks looks);
  std::span<std::byte> own(const Piece& piece) const { return piece.slices[static_cast<std::size_t>(rank_)]; }
  static std::shared_ptr<Message> message_of(const TensorView& flat, const RankParts& parts);
  /// The number of a rank's first part; of behind the last rank, of all parts.
  static int number_of(const Piece& piece, int rank) {
    const std::span<const int> numbers = piece.message->numbers_;
    return numbers.empty() ? rank : numbers[static_cast<std::size_t>(rank)];
  }
  /// From one part to the next in a room.
  std::size_t stride_in_room(const Piece& piece) const {
    constexpr std::size_t line = 64;
    return (own(piece).size() + line - 1) / line * line;
  }
  bool has_rooms_for(const Piece& piece);
  std::span<std::byte> room_for(const Piece& piece, int part);

  Communicator& communicator_;
  Messenger& messenger_;
  Lanes lanes_;
  int rank_, size_;
  std::size_t most_;  ///< pieces that are under way at a time, each way
  Buffer rooms_;      ///< each for one slice of all parts
  std::size_t room_bytes_ = 0;
  std::vector<std::size_t> free_rooms_;
  /// The pieces before one of the ways of a piece, and on it, in order.
  struct Way {
    std::deque<Piece> before = {}, on = {};
    std::int64_t bytes = 0;  ///< of those on it

    static Piece take_first(std::deque<Piece>& pieces) {
      Piece piece = std::move(pieces.front());
      pieces.pop_front();
      return piece;
    }
    Piece next() { return take_first(before); }
    void push(Piece piece) {
      bytes += piece.bytes;
      on.push_back(std::move(piece));
    }
    Piece pop() {
      bytes -= on.front().bytes;
      return take_first(on);
    }
  };
  Way to_owners_, to_all_;
  Window window_{bytes_under_way};
  Looks looks_;                  ///< how this rank looks now
  std::int64_t carried_ = 0;     ///< since the last look
  std::vector<Parcel> parcels_;  ///< by rank, of what is being sent; empty before the first message
};

/// Messages that `sums`, a SumsUnderWay or TwoLevels, has started. It must outlive the Work.
template <class Sums>
Work work_of(Sums& sums, std::vector<std::shared_ptr<const typename Sums::Message>> messages) {
  using Messages = decltype(messages);
  struct UnderWay final : Work::Pending {
    UnderWay(Sums& all_sums, Messages its_messages) : sums{all_sums}, messages{std::move(its_messages)} {}
    void wait() override {
      for (const auto& message : messages) sums.wait(*message);
    }
    bool advance() override {
      (void)sums.advance();
      return std::ranges::all_of(messages, [](const auto& message) { return message->is_done(); });
    }
    Work::Traffic traffic() const override {
      Work::Traffic traffic;
      for (const auto& message : messages) traffic += message->traffic();
      return traffic;
    }
    Sums& sums;
    Messages messages;
  };
  return Work{std::make_unique<UnderWay>(sums, std::move(messages))};
}

}  // namespace lockstep::detail
