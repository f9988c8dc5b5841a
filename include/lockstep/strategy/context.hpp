// Where the program stands: in cross-replica context (a scope, or a merge function) or in replica context (inside run,
// and outside of everything, in the default context). Always in exactly one of the two. One stack a thread.
#pragma once

namespace lockstep {

class ReplicaContext;
class Strategy;

/// Makes a strategy current until it goes: cross-replica context. Scopes nest like blocks.
class Scope {
 public:
  Scope(const Scope&) = delete;  // it ends where it stands: contexts nest like blocks
  Scope& operator=(const Scope&) = delete;
  ~Scope();

 private:
  friend class Strategy;
  explicit Scope(Strategy& strategy);
};

/// LOCAL. False in the default context, and in the default strategy's own scope, run and merge functions.
bool has_strategy();

/// LOCAL. True in a scope and in a merge function, false in the default context and in replica context.
bool in_cross_replica_context();

/// LOCAL. True in a function that `update` or `update_non_slot` calls: there an assignment goes straight to this rank's
/// component.
bool in_update_context();

/// LOCAL. The current replica context; null in cross-replica context. In the default context it is the default
/// strategy's: one replica, no communication.
ReplicaContext* replica_context();

/// LOCAL, in any context. Whether this rank records summaries here: replica 0 alone, in replica context and in
/// cross-replica context, so that each is written once a job. It may look at what is its own without the others: a
/// variable's `local` is LOCAL, also where reading the variable would be COLL. True under the default strategy, which
/// knows of no other replica.
bool should_record_summaries();

}  // namespace lockstep
