// Where the program stands: in the default context, in cross-replica context (a scope, or a merge function), or in
// replica context (inside run). One stack a thread.
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

/// LOCAL. False in the default context.
bool has_strategy();

/// LOCAL. True in a scope and in a merge function, false in the default context and in replica context.
bool in_cross_replica_context();

/// LOCAL. True in a function that `update` or `update_non_slot` calls: there an assignment goes straight to this rank's
/// component.
bool in_update_context();

/// LOCAL. The current replica context; null in cross-replica context, and in the default context.
ReplicaContext* replica_context();

}  // namespace lockstep
