// What lockstep-train adds to the description of a run.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/models/fit/fit.hpp>
#include <lockstep/models/input/schema.hpp>

#include "apps/lockstep-train/options/training_options.hpp"

namespace lockstep {

/// What a training knows when it begins.
struct RunFacts {
  const TrainingOptions& options;  ///< complete
  const FitOptions& fit;
  std::string kernels;      ///< their fingerprint
  std::string compression;  ///< of gradients (compression_text); empty if there is none
  std::uint64_t data_digest;
  const DataSchema& schema;
  std::int64_t samples;
  std::int64_t test_samples;
};

/// {"options","cluster","fingerprint","data","paths"}, as docs/reference.md says. The options are those that the
/// command line named, as text, and all that describe model, data and training, with the values that count.
std::string to_json(const RunFacts& facts);

/// {"training":{…},"kernels","compression","schema"}: what decides the bits of the training, for the head of its
/// ledger. "compression" is there only if gradients are compressed. Nothing in it depends on ranks.
std::string ledger_json(const RunFacts& facts);

}  // namespace lockstep
