// Strategies of a group of one, for the tests of their methods.
#pragma once

#include <memory>
#include <string>

#include <lockstep/strategy/strategy.hpp>

namespace lockstep::test {

struct TwoStrategies {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy{*group};
  Strategy other{*group};
};

inline MirroredVariable make(Strategy& strategy, const std::string& name, Here here = Here::current()) {
  return strategy.create_variable(
      {.name = name}, [] { return Tensor::scalar(1.f); }, here);
}

}  // namespace lockstep::test
