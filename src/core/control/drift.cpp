#include "core/control/drift.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/hex.hpp>

#include "core/control/names.hpp"

namespace lockstep::detail {
namespace {

/// Replicas that hold the same digest, ascending.
struct Holders {
  std::uint64_t digest;
  std::vector<int> replicas;
};

/// Ordered by their lowest replica.
std::vector<Holders> holders_of(const DriftError::Value& value) {
  std::vector<Holders> all;
  for (std::size_t replica = 0; replica < value.digests.size(); ++replica) {
    const std::uint64_t digest = value.digests[replica];
    auto same = std::find_if(all.begin(), all.end(), [&](const Holders& each) { return each.digest == digest; });
    if (same == all.end()) same = all.insert(same, {digest, {}});
    same->replicas.push_back(static_cast<int>(replica));
  }
  return all;
}

/// The replicas outside the majority, ascending; empty if there is no majority.
std::vector<int> outside_of_majority(std::span<const Holders> holders, std::size_t replicas) {
  const auto majority = std::find_if(holders.begin(), holders.end(),
                                     [&](const Holders& each) { return 2 * each.replicas.size() > replicas; });
  std::vector<int> outside;
  if (majority == holders.end()) return outside;
  for (auto each = holders.begin(); each != holders.end(); ++each)
    if (each != majority) outside.insert(outside.end(), each->replicas.begin(), each->replicas.end());
  std::sort(outside.begin(), outside.end());
  return outside;
}

/// With the first value that differs, which `first` gets.
DriftError::Drift drift_of(std::span<const ComparedValue> values, std::span<const std::uint64_t> digests,
                           const ComparedValue*& first_value) {
  DriftError::Drift drift;
  for (std::size_t index = 0; index < values.size(); ++index) {
    DriftError::Value value{values[index].name, {}};
    for (std::size_t at = index; at < digests.size(); at += values.size()) value.digests.push_back(digests[at]);
    if (holders_of(value).size() == 1) continue;
    if (drift.values.empty()) first_value = &values[index];
    drift.values.push_back(std::move(value));
  }
  const DriftError::Value& first = drift.values.front();
  drift.blamed = outside_of_majority(holders_of(first), first.digests.size());
  return drift;
}

/// "replica 0 (chief:0, host a) holds digest … of variable 'w', replica 1 (worker:0, host b) digest …: …"
std::string who_holds_what(std::span<const Holders> holders, std::string_view what,
                           std::span<const std::string> replicas) {
  std::string text;
  for (const Holders& each : holders) {
    const std::string who = named_by_first(each.replicas, replicas);
    text += text.empty() ? fmt::format("{} {} digest {} of {}", who, each.replicas.size() == 1 ? "holds" : "hold",
                                       to_hex(each.digest), what)
                         : fmt::format(", {} digest {}", who, to_hex(each.digest));
  }
  return text + ": no majority can be told";
}

std::string sentence_of(const DriftError::Drift& drift, const ComparedValue& first,
                        std::span<const std::string> replicas) {
  std::string what = first.name + first.when;
  if (drift.values.size() > 1) what += fmt::format(", the first of {} that differ", drift.values.size());
  if (drift.blamed.empty())
    return who_holds_what(holders_of(drift.values.front()), what, replicas) +
           (first.cause.empty() ? "" : "; " + first.cause);
  return fmt::format("{} {} from the others in {}{}", named_by_first(drift.blamed, replicas),
                     drift.blamed.size() == 1 ? "differs" : "differ", what,
                     first.cause.empty() ? "" : ": " + first.cause);
}

}  // namespace

Verdict judge_drift(std::span<const ComparedValue> values, std::span<const std::uint64_t> digests,
                    std::span<const std::string> replicas) {
  const ComparedValue* first = nullptr;
  DriftError::Drift drift = drift_of(values, digests, first);
  const int rank = drift.blamed.empty() ? 0 : drift.blamed.front();
  std::string sentence = sentence_of(drift, *first, replicas);
  const auto exception = std::make_exception_ptr(DriftError{sentence, std::move(drift)});
  return {rank, Error::ExitCode::replicas_differ, false, std::move(sentence), exception};
}

}  // namespace lockstep::detail
