// What it costs to read the data of a training: the bytes that are read, and the time until the first step is done.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"
#include "apps/lockstep-train/options/training_options.hpp"

namespace lockstep::bench {

struct InputOptions {
  static constexpr const char* name = "input";

  std::filesystem::path data;
  ModelKind model = ModelKind::mlp;
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
};

/// COLL. Trains one step on the data, as lockstep-train would, with a small model. `add` gets one row, the same on
/// every rank. Returns an empty text; throws as `Trainer::train`.
[[nodiscard]] std::string bench_input(Runtime& runtime, const InputOptions& options, const AddRow& add);

}  // namespace lockstep::bench
