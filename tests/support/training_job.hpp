// Runs of lockstep-train in end-to-end tests: on the small data set, and what their output must look like.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/job.hpp"

namespace lockstep::test {

using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

/// The folder of the small data set: 6,000 images to train on, 1,000 to test. `meson test` names it in
/// LOCKSTEP_SMALL_DATA; std::runtime_error where that is not set.
std::filesystem::path small_data();

Arguments operator+(Arguments left, const Arguments& right);

/// The arguments of a run that is right, and over at once: the small data set, a small model, 3 steps.
Arguments short_run();

/// A text of so many bytes: sentences of a few words, in an order without a pattern.
std::string small_text(std::size_t size);

/// A small language model on a text of 4,000 bytes, which is written into `folder`.
Arguments small_gpt(const TemporaryDirectory& folder);

/// What a run that ended well leaves.
struct Trained {
  Json result;
  std::vector<Json> metrics;
  std::string written;      ///< to stdout before the result: by a model, asked with --sample
  std::vector<Json> parts;  ///< of the metrics, what went where

  std::string digest() const { return result.at("weights_digest").get<std::string>(); }
};

/// The number of bytes in what a model wrote, of which control characters are shown as "\x1b".
std::size_t bytes_of(const std::string& written);

/// Runs `mpirun -n ranks lockstep-train arguments…`, with `--data SMALL` unless they name data, requires that it ends
/// well with nothing but the result, and a sample if one is asked for, on stdout and nothing left running, and reads
/// what it wrote.
Trained train(int ranks, const Arguments& arguments, const CommandOptions& options = {});

/// The keys of an object, in their order.
std::vector<std::string> keys_of(const Json& object);

/// The objects of a metrics file, but for those about where the time went.
std::vector<Json> read_metrics(const std::filesystem::path& file);

/// Those about where the time went.
std::vector<Json> read_parts(const std::filesystem::path& file);

/// The same without what may differ between equal runs: `seconds` and `samples_per_second`.
std::string without_times(const std::vector<Json>& metrics);

/// Requires that two runs ended in the same bytes, none of them a NaN's, and said the same on the way.
void check_same(const Trained& one, const Trained& other);

/// Requires that `arguments` end in the same bytes, and say the same on the way, on each of these numbers of ranks.
void check_same_on(const std::vector<int>& rank_counts, const Arguments& arguments);

/// Runs a job that is to be refused. mpirun kills what is left at once instead of after its usual second, or more: the
/// ranks must not need that.
Outcome run_refused(int ranks, const Arguments& arguments, CommandOptions options = {});

/// The same of a whole command, such as `mpirun -n 1 … : -n 1 …`, with the environment that jobs have.
Outcome run_refused_command(const std::vector<std::string>& command);

/// Checks that the job ended as bad input must: one line `lockstep: error: …` that contains each of `told`, exit code
/// 2, nothing on stdout, nothing left running.
void check_refused(const Outcome& outcome, const std::vector<std::string>& told);

}  // namespace lockstep::test
