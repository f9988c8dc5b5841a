// What every kind of samples asks of the samples that a batch is to hold.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

/// InvalidArgument unless all samples are in [0, count), and are no more than `rows`.
void require_samples(std::span<const std::int64_t> sample_indices, std::int64_t count, std::int64_t rows);

}  // namespace lockstep
