#include "apps/lockstep-train/data/scale_hint.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/element_count.hpp"
#include "core/base/excerpt.hpp"
#include "models/nn/shard_checks.hpp"

namespace lockstep {
namespace {

constexpr double most = 1000, far_from_1 = 100;
constexpr std::int64_t samples_read_at_once = 1024;
// Soon read, so that no rank is late for the message.
constexpr std::int64_t most_samples = 64 * samples_read_at_once;

/// The largest absolute values.
struct Largest {
  std::vector<double> columns;
  double label = 0;  ///< of a regression
};

Largest largest_values(const SampleSource& samples, const DataSchema& schema) {
  Largest largest{.columns = std::vector<double>(static_cast<std::size_t>(element_count(schema.sample)))};
  const std::size_t columns = largest.columns.size();
  const auto raise = [](double& largest_so_far, double number) {
    largest_so_far = std::max(largest_so_far, std::abs(number));
  };
  SampleBatch batch = samples.make_batch(samples_read_at_once, Stream::host());
  const std::int64_t count = std::min(samples.count(), most_samples);
  for (std::int64_t first = 0; first < count; first += samples_read_at_once) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::min(samples_read_at_once, count - first)));
    std::iota(numbers.begin(), numbers.end(), first);
    samples.fill(numbers, batch);
    const std::vector<double> inputs = nn::to_doubles(batch.inputs.view());
    for (std::size_t i = 0; i < numbers.size() * columns; ++i) raise(largest.columns[i % columns], inputs[i]);
    if (schema.task != DataSchema::Task::regression) continue;
    const std::vector<double> labels = nn::to_doubles(batch.labels.view());
    for (std::size_t i = 0; i < numbers.size(); ++i) raise(largest.label, labels[i]);
  }
  return largest;
}

}  // namespace

std::string scale_hint(const SampleSource& samples, const DataSchema& schema) {
  if (!schema.scales.empty() || schema.numbers == DataSchema::Numbers::bytes) return {};
  Largest found;
  try {
    found = largest_values(samples, schema);
  } catch (const Error&) {
    return {};  // the divergence is what is to be told
  }
  const std::vector<double>& largest = found.columns;
  const auto top = std::ranges::max_element(largest);
  auto bottom = top;
  for (auto each = largest.begin(); each != largest.end(); ++each)
    if (*each > 0 && *each < *bottom) bottom = each;
  if (schema.columns.empty())
    return *top > far_from_1
               ? fmt::format("; the numbers of a sample reach {:.4g}: arrays of (x - x.mean()) / x.std() may help",
                             *top)
               : "";
  const auto shown = [&](auto column) {
    return fmt::format("\"{}\" (up to {:.4g})",
                       excerpt(schema.columns[static_cast<std::size_t>(column - largest.begin())]), *column);
  };
  if (!(*top / *bottom > most)) {
    if (*top > far_from_1) return fmt::format("; column {} is far from 1: --scale standard may help", shown(top));
    if (found.label > far_from_1)
      return fmt::format("; the label \"{}\" (up to {:.4g}) is far from 1: --scale standard may help",
                         excerpt(schema.label_column), found.label);
    return {};
  }
  return fmt::format("; the columns {} and {} differ by more than a factor of {}: --scale standard may help",
                     shown(top), shown(bottom), most);
}

}  // namespace lockstep
