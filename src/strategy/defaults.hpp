// What the default context offers: a strategy and its replica context. Each thread has its own, like its stack of
// contexts.
#pragma once

#include <memory>

#include <lockstep/strategy/strategy.hpp>

#include "group/local_group.hpp"

namespace lockstep::detail {

/// Made on first use, and never moved.
struct Defaults {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy{*group};
  ReplicaContext context{strategy.extended()};

  static Defaults& of_thread();
};

bool is_default(const Strategy& strategy);
bool is_default(const ReplicaContext& context);

}  // namespace lockstep::detail
