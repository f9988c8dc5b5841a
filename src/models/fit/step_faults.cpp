#include "models/fit/step_faults.hpp"

namespace lockstep {

StepFaults::StepFaults(const std::optional<InjectedFault>& fault, int rank, std::int64_t shards, std::size_t variables,
                       Stream& stream)
    : fault_{fault}, rank_{rank}, shards_{shards}, variables_{variables}, stream_{stream} {}

void StepFaults::slow_down(BusyClock& clock) const {
  if (fault_) fault_->slow_down(clock, rank_);
}

bool StepFaults::skips_merge() const {
  return fault_ && fault_->skips_merge(rank_, step_);
}

void StepFaults::read(const SampleBatch& batch) const {
  if (fault_ && fault_->misreads(rank_, step_)) fault_->misread(batch, stream_);
}

bool StepFaults::spoils(std::int64_t shard) const {
  if (!fault_) return false;
  if (shard == foreign) return fault_->miscomputes_still(rank_, step_);
  return shard == whole ? fault_->miscomputes(rank_, step_, 0, 1) : fault_->miscomputes(rank_, step_, shard, shards_);
}

void StepFaults::computed(std::int64_t shard, std::size_t variable, const TensorView& gradient) const {
  if (spoils(shard)) fault_->miscompute(gradient, variable, variables_, stream_);
}

void StepFaults::end(std::span<const Variable> weights) const {
  if (fault_) fault_->strike(rank_, step_, weights);
}

}  // namespace lockstep
