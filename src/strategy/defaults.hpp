// What the default context offers: a strategy and its replica context, one of each a thread, as the context is.
#pragma once

#include <memory>

#include <lockstep/strategy/strategy.hpp>

namespace lockstep::detail {

/// Made when first asked for, and never moved.
struct Defaults {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy{*group};
  ReplicaContext context{strategy.extended()};

  static Defaults& of_thread();
};

bool is_default(const Strategy& strategy);
bool is_default(const ReplicaContext& context);

}  // namespace lockstep::detail
