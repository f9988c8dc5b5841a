// Contexts. A program is always in exactly one of two: in cross-replica context (a scope or a merge function) or in
// replica context (inside run, and outside everything, in the default context). Each thread has its own stack of them.
#pragma once

#include <lockstep/base/here.hpp>

namespace lockstep {

class ReplicaContext;
class Strategy;

/// Makes a strategy current, in cross-replica context, until it is destroyed. Scopes nest like blocks.
class Scope {
 public:
  Scope(const Scope&) = delete;  // a scope ends with its block: contexts nest
  Scope& operator=(const Scope&) = delete;
  ~Scope();

 private:
  friend class Strategy;
  Scope(Strategy& strategy, const Here& here);
};

/// LOCAL. Whether a strategy is current. False in the default context and in the default strategy's own scope, run and
/// merge functions.
bool has_strategy();

/// LOCAL. True in a scope, a merge function and an update function; false in the default context and in replica
/// context.
bool in_cross_replica_context();

/// LOCAL. True in a function called by `update` or `update_non_slot`, where an assignment goes straight to this rank's
/// component.
bool in_update_context();

/// LOCAL. The current replica context, or null in cross-replica context. In the default context it is the default
/// strategy's, which has one replica and no communication.
ReplicaContext* replica_context();

/// LOCAL, in any context. Whether this rank records summaries, so that each is written once per job: true on replica 0
/// only, in replica and cross-replica context alike. Code that only this rank runs may make no COLL call. A variable's
/// `local` is LOCAL even where reading the variable is COLL. True under the default strategy, which knows no other
/// replica.
bool should_record_summaries();

}  // namespace lockstep
