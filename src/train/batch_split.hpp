// Cuts a batch that every rank has into the pieces of the replicas.
#pragma once

#include <optional>
#include <vector>

#include <lockstep/values/nest.hpp>

namespace lockstep::detail {

/// Replaces the leaves by the piece of replica `replica` of `replicas`, in the same memory. InvalidArgument if they
/// have no rows or different numbers of them, or if the replicas do not divide these.
void split_batch(std::vector<Leaf>& features, std::optional<std::vector<Leaf>>& labels, int replica, int replicas);

}  // namespace lockstep::detail
