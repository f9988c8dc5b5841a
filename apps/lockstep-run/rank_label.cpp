#include "apps/lockstep-run/rank_label.hpp"

#include <algorithm>

namespace lockstep::run {
namespace {

constexpr std::string_view digits_of_label = "0123456789";

/// The length of `line` up to the end of `next`, which begins at `at`; 0 if something else does.
std::optional<std::size_t> end_of(std::string_view next, std::string_view line, std::size_t at) {
  const std::string_view there = line.substr(at, next.size());
  if (!next.starts_with(there)) return 0;
  return there.size() < next.size() ? std::nullopt : std::optional{at + next.size()};
}

}  // namespace

std::optional<std::size_t> label_length(std::string_view line) {
  if (!line.starts_with('[')) {
    const std::size_t number = std::min(line.find_first_not_of(' '), line.size());  // srun aligns it
    const std::size_t colon = std::min(line.find_first_not_of(digits_of_label, number), line.size());
    return colon == number && number < line.size() ? 0 : end_of(": ", line, colon);
  }
  constexpr std::size_t longest_job = 300;  // Open MPI 5 names its host
  const std::size_t bracket = line.find(']');
  if (bracket == line.npos && line.find_first_of(" \n") == line.npos && line.size() < longest_job) return std::nullopt;
  if (bracket == line.npos) return 0;
  const std::string_view place = line.substr(1, bracket - 1);
  if (place.find_first_not_of(digits_of_label) == place.npos) return end_of(" ", line, bracket + 1);
  if (place.find(',') == place.npos) return 0;
  const auto end = end_of("<stderr>:", line, bracket + 1);
  if (end != line.size()) return end && *end > 0 && line[*end] == ' ' ? *end + 1 : end;  // Open MPI 5 adds a space
  return std::nullopt;
}

}  // namespace lockstep::run
