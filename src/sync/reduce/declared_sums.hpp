// Sums over the ranks in the middle of a computation that may fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/sync/reduce/sum_list.hpp>

#include "core/base/parts.hpp"
#include "core/comm/communicator.hpp"
#include "core/control/meeting_point.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/slice_map.hpp"

namespace lockstep {

using detail::SumList;

/// "6 sums of 384 f32 (digest 0123456789abcdef)": short, and different for different lists.
LOCKSTEP_PARTS_API std::string describe(const SumList& list);

/// A run of gradients that travels as one message, complete when the `pieces` first gradients are.
struct GradientBucket {
  TensorView memory;
  std::size_t pieces;
  /// If given, each rank gets the sum in its own slices alone.
  std::shared_ptr<const detail::SliceMap> slices = {};

  /// Reductions::start or start_scatter.
  Work start(Reductions& reductions) const;
};

/// The sums of a list, and then of gradients, that the ranks have agreed on in advance. A rank that fails between two
/// of them therefore knows what the others will wait for, and contributes to it.
class LOCKSTEP_PARTS_API DeclaredSums {
 public:
  /// For tensors in memory of the stream's device. All arguments must outlive this object. `pieces` rises
  /// from bucket to bucket; that of the last one is the number of gradients. If `region` is null, the watchdog does
  /// not see these waits.
  DeclaredSums(Reductions& reductions, const SumList& list, Stream& stream,
               std::span<const GradientBucket> buckets = {}, AgreedRegion* region = nullptr);

  /// COLL, as Reductions::all_reduce. Makes the next sum of the list, in place. InvalidArgument, before anything is
  /// sent, for a tensor of another type or number of elements, or if no sum is left. `others` as Reductions::sum_up.
  void all_reduce(const TensorView& tensor, std::span<const TensorView> others = {});

  /// COLL. Makes another collective, before all sums. A rank that does not come to it in time is late.
  void wait(const std::function<void()>& collective);

  /// Says that gradient number `piece` is complete. Starts the sums of the buckets whose turn has come, in their order:
  /// after those of the list, whatever the order of the pieces. Between nodes, those that were started move on. False
  /// if the piece was complete before.
  [[nodiscard]] bool ready(std::size_t piece);

  /// The same of all pieces at once.
  void all_ready();

  /// LOCAL. Of the last `finish` on this thread: what this rank sends to other nodes for gradients, and how much of it
  /// had been given to the network before the last gradient was ready.
  static Work::Traffic last_traffic();

  /// As long as it lives, sums on this thread start when all gradients are ready. To find out what is gained by
  /// starting early. The other ranks need not do the same.
  class [[nodiscard]] StartLate {
   public:
    StartLate();
    StartLate(const StartLate&) = delete;
    StartLate& operator=(const StartLate&) = delete;
    ~StartLate();
  };

  /// LOCAL. The first piece that is not complete; nothing if all are.
  std::optional<std::size_t> first_unready() const;

  /// LOCAL. InvalidArgument unless every sum of the list has been made.
  void require_all_made() const;

  /// COLL. Contributes zeros to the sums that have not been made or started. Overwrites the gradients in their buckets.
  void make_the_rest();

  /// COLL. Waits for the sums that were started, which must be all.
  void finish();

 private:
  void start_complete();
  void start_next();
  void advance();

  Reductions& reductions_;
  const SumList& list_;
  Stream& stream_;
  std::span<const GradientBucket> buckets_;
  AgreedRegion* region_;
  std::size_t made_ = 0;     ///< of the list
  std::vector<bool> ready_;  ///< by piece
  std::size_t ready_pieces_ = 0;
  std::size_t complete_ = 0;  ///< pieces that are ready with all before them
  std::vector<Work> started_;
  std::size_t done_ = 0;  ///< of those, at the front
  Work::Traffic traffic_;
};

}  // namespace lockstep
