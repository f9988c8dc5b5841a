#include "strategy/attestation.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <lockstep/base/digest.hpp>

#include "control/names.hpp"
#include "tensor/digest.hpp"

namespace lockstep::detail {
namespace {

/// Replicas that hold the same, ascending.
struct Holders {
  std::uint64_t digest;
  std::vector<int> replicas;
};

/// In the order of their lowest replica.
std::vector<Holders> holders_of(std::size_t variable, std::size_t variables, std::span<const std::uint64_t> digests) {
  std::vector<Holders> all;
  for (std::size_t replica = 0; replica * variables < digests.size(); ++replica) {
    const std::uint64_t digest = digests[replica * variables + variable];
    auto same = std::find_if(all.begin(), all.end(), [&](const Holders& each) { return each.digest == digest; });
    if (same == all.end()) same = all.insert(same, {digest, {}});
    same->replicas.push_back(static_cast<int>(replica));
  }
  return all;
}

/// "replica 0 (chief:0, host a) holds digest … of variable 'w', replica 1 (worker:0, host b) digest …: …"
std::string who_holds_what(std::span<const Holders> holders, std::string_view what,
                           std::span<const std::string> names) {
  std::string text;
  for (const Holders& each : holders) {
    const std::string who = named_by_first(each.replicas, names);
    text += text.empty() ? fmt::format("{} {} digest {} of {}", who, each.replicas.size() == 1 ? "holds" : "hold",
                                       to_hex(each.digest), what)
                         : fmt::format(", {} digest {}", who, to_hex(each.digest));
  }
  return text + ": no majority can be told";
}

}  // namespace

Attestation::Attestation(const VariableStore& store) {
  for (const auto& variable : store.variables()) {
    if (!variable->segment || variable->synchronization != VariableSynchronization::on_write) continue;
    labels_.push_back(variable->label);
    digests_.push_back(digest_of_elements(MirroredVariable{variable}.local()));
  }
}

std::string Attestation::text() const {
  return fmt::format("variables of digest {}", to_hex(digest_of(std::as_bytes(std::span{digests_}))));
}

Verdict Attestation::diagnose(ControlChannel& channel, std::span<const std::string> names) const {
  std::vector<std::uint64_t> all(digests_.size() * static_cast<std::size_t>(channel.size()));
  channel.all_gather(std::as_bytes(std::span{digests_}), std::as_writable_bytes(std::span{all}));
  return judge_drift(labels_, all, names);
}

Verdict judge_drift(std::span<const std::string> variables, std::span<const std::uint64_t> digests,
                    std::span<const std::string> names) {
  std::vector<std::size_t> differing;
  for (std::size_t variable = 0; variable < variables.size(); ++variable)
    if (holders_of(variable, variables.size(), digests).size() > 1) differing.push_back(variable);

  std::string what = fmt::format("variable {}", variables[differing.front()]);
  if (differing.size() > 1) what += fmt::format(", the first of {} that differ", differing.size());
  const std::vector<Holders> holders = holders_of(differing.front(), variables.size(), digests);
  const auto majority = std::find_if(holders.begin(), holders.end(),
                                     [&](const Holders& each) { return 2 * each.replicas.size() > names.size(); });
  if (majority == holders.end()) return {0, ExitCode::replicas_differ, false, who_holds_what(holders, what, names)};

  std::vector<int> blamed;
  for (auto each = holders.begin(); each != holders.end(); ++each)
    if (each != majority) blamed.insert(blamed.end(), each->replicas.begin(), each->replicas.end());
  std::sort(blamed.begin(), blamed.end());
  return {blamed.front(), ExitCode::replicas_differ, false,
          fmt::format("{} {} from the others in {}", named_by_first(blamed, names),
                      blamed.size() == 1 ? "differs" : "differ", what)};
}

}  // namespace lockstep::detail
