// Strategies of a group of one, for the tests of their methods.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/sync/strategy/strategy.hpp>

#include "core/control/meeting_point.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::test {

struct TwoStrategies {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  Strategy other = strategy_on(*group);

  std::uint64_t meetings() const { return group->meeting().meetings(); }
};

/// What batch_reduce_to takes.
using Pairs = std::vector<std::pair<PerReplica<Tensor>, Variable>>;

inline MirroredVariable make(Strategy& strategy, const std::string& name, Here here = Here::current()) {
  return strategy.create_variable(
      {.name = name}, [] { return Tensor::scalar(1.f); }, here);
}

}  // namespace lockstep::test
