// Predictions and exported outputs of all replicas.
#pragma once

#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/tf/estimator/estimator_spec.hpp>

namespace lockstep::detail {

/// LOCAL. InvalidArgument for a prediction or an exported tensor that has no rows.
void require_rows(const EstimatorSpec& spec);

/// COLL, blocking, in replica context, two agreements. Replaces the predictions and exported outputs by those of all
/// ranks, in rank order: rows together, classes in a new first dimension. What only some ranks have has their rows.
/// Each has rows. MismatchError if types or extents differ, or if ranks export different kinds of output under one
/// name.
void gather_outputs(EstimatorSpec& spec, ReplicaContext& context, const Here& here);

}  // namespace lockstep::detail
