#include "apps/lockstep-train/data/scale_hint.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "base/excerpt.hpp"
#include "nn/shard_checks.hpp"

namespace lockstep {
namespace {

constexpr double most = 1000;
constexpr std::int64_t samples_read_at_once = 1024;
// Soon read, so that no rank is late for the message.
constexpr std::int64_t most_samples = 64 * samples_read_at_once;

/// The largest absolute value of each column.
std::vector<double> largest_values(const SampleSource& samples, std::size_t columns) {
  std::vector<double> largest(columns);
  SampleBatch batch = samples.make_batch(samples_read_at_once, Stream::host());
  const std::int64_t count = std::min(samples.count(), most_samples);
  for (std::int64_t first = 0; first < count; first += samples_read_at_once) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::min(samples_read_at_once, count - first)));
    std::iota(numbers.begin(), numbers.end(), first);
    samples.fill(numbers, batch);
    const std::vector<double> inputs = nn::to_doubles(batch.inputs.view());
    for (std::size_t i = 0; i < numbers.size() * columns; ++i)
      largest[i % columns] = std::max(largest[i % columns], std::abs(inputs[i]));
  }
  return largest;
}

}  // namespace

std::string scale_hint(const SampleSource& samples, const std::vector<std::string>& columns) {
  if (columns.empty()) return {};
  std::vector<double> largest;
  try {
    largest = largest_values(samples, columns.size());
  } catch (const Error&) {
    return {};  // the divergence is what is to be told
  }
  const auto top = std::ranges::max_element(largest);
  auto bottom = top;
  for (auto each = largest.begin(); each != largest.end(); ++each)
    if (*each > 0 && *each < *bottom) bottom = each;
  if (!(*top / *bottom > most)) return {};
  const auto shown = [&](auto column) {
    return fmt::format("\"{}\" (up to {:.4g})", excerpt(columns[static_cast<std::size_t>(column - largest.begin())]),
                       *column);
  };
  return fmt::format("; the columns {} and {} differ by more than a factor of {}: --scale standard may help",
                     shown(top), shown(bottom), most);
}

}  // namespace lockstep
