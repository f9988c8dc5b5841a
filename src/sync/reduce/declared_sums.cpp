#include "sync/reduce/declared_sums.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>

#include "core/base/digest.hpp"
#include "core/comm/communicator.hpp"
#include "core/control/meeting_point.hpp"
#include "core/device/stream_spans.hpp"
#include "core/trace/ring.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep {
namespace {

thread_local bool starts_late = false;
thread_local Work::Traffic traffic_of_last;

}  // namespace

DeclaredSums::StartLate::StartLate() {
  starts_late = true;
}

DeclaredSums::StartLate::~StartLate() {
  starts_late = false;
}

Work::Traffic DeclaredSums::last_traffic() {
  return traffic_of_last;
}

std::string describe(const SumList& list) {
  const std::int64_t elements = std::accumulate(list.counts.begin(), list.counts.end(), std::int64_t{0});
  return fmt::format("{} sums of {} {} (digest {})", list.counts.size(), elements, name_of(list.dtype),
                     to_hex(digest_of(fmt::format("{}", fmt::join(list.counts, ",")))));
}

Work GradientBucket::start(Reductions& reductions) const {
  return slices ? reductions.start_scatter({memory, slices}) : reductions.start(memory);
}

DeclaredSums::DeclaredSums(Reductions& reductions, const SumList& list, Stream& stream,
                           std::span<const GradientBucket> buckets, AgreedRegion* region)
    : reductions_{reductions},
      list_{list},
      stream_{stream},
      buckets_{buckets},
      region_{region},
      ready_(buckets.empty() ? 0 : buckets.back().pieces) {}

void DeclaredSums::all_reduce(const TensorView& tensor, std::span<const TensorView> others) {
  if (made_ == list_.counts.size())
    throw InvalidArgument{
        fmt::format("a sum of {} behind the {} that were declared", describe(tensor), list_.counts.size())};
  if (tensor.dtype() != list_.dtype || tensor.count() != list_.counts[made_])
    throw InvalidArgument{fmt::format("sum {} of {}: {}; declared were {} elements of {}", made_ + 1,
                                      list_.counts.size(), describe(tensor), list_.counts[made_],
                                      name_of(list_.dtype))};
  ++made_;
  wait([&] { reductions_.sum_up(tensor, others); });
  start_complete();
}

void DeclaredSums::wait(const std::function<void()>& collective) {
  region_ ? region_->wait_in(collective) : collective();
}

bool DeclaredSums::ready(std::size_t piece) {
  if (piece >= ready_.size()) return true;  // no elements, and in no bucket
  if (ready_[piece]) return false;
  ready_[piece] = true;
  ++ready_pieces_;
  advance();
  if (ready_pieces_ == ready_.size())
    for (const Work& each : started_) traffic_.begun += each.traffic().begun;
  start_complete();
  return true;
}

void DeclaredSums::all_ready() {
  ready_.assign(ready_.size(), true);
  ready_pieces_ = ready_.size();
  start_complete();
}

/// The first that travels and is not done: those behind it move on with it.
void DeclaredSums::advance() {
  for (std::size_t bucket = done_; bucket < started_.size(); ++bucket) {
    if (!started_[bucket].advance()) {
      if (started_[bucket].traffic().all > 0) return;
    } else if (bucket == done_) {
      ++done_;
    }
  }
}

void DeclaredSums::start_complete() {
  if (made_ < list_.counts.size() || (starts_late && ready_pieces_ < ready_.size())) return;
  while (complete_ < ready_.size() && ready_[complete_]) ++complete_;
  while (started_.size() < buckets_.size() && buckets_[started_.size()].pieces <= complete_) start_next();
}

void DeclaredSums::start_next() {
  const BucketSpans spans{started_.size()};
  started_.push_back(buckets_[started_.size()].start(reductions_));
}

std::optional<std::size_t> DeclaredSums::first_unready() const {
  const auto found = std::ranges::find(ready_, false);
  return found == ready_.end() ? std::nullopt : std::optional{static_cast<std::size_t>(found - ready_.begin())};
}

void DeclaredSums::require_all_made() const {
  if (made_ < list_.counts.size())
    throw InvalidArgument{fmt::format("{} of {} declared sums were made", made_, list_.counts.size())};
}

void DeclaredSums::make_the_rest() {
  while (made_ < list_.counts.size()) all_reduce(Tensor::zeros(list_.dtype, {list_.counts[made_]}, stream_).view());
  while (started_.size() < buckets_.size()) {
    buckets_[started_.size()].memory.fill_zero(stream_);
    start_next();
  }
}

void DeclaredSums::finish() {
  for (const Work& each : started_) traffic_.all += each.traffic().all;
  traffic_of_last = traffic_;
  for (std::size_t bucket = 0; bucket < started_.size(); ++bucket) {
    const trace::Within span{trace::Kind::sum, "bucket", bucket};
    const BucketSpans spans{bucket};
    wait([&] { started_[bucket].wait(); });
  }
}

}  // namespace lockstep
