// What a training step costs when it is looked at or audited, and what it gains by sums that overlap with it.
#pragma once

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"
#include "apps/lockstep-bench/step.hpp"

namespace lockstep::bench {

/// COLL. One training, in which a trace (StepOptions::Compare::trace) or the clock that sums up the parts of a step
/// (parts) is switched off and on every `steps` steps. An iteration is a block with it and a block without, and every
/// other iteration begins with the latter, so that neither drift nor order favours one. `add` gets one row, the same
/// on every rank: `without` and `with`, the medians over the iterations of the mean step of a block; `cost`, by how
/// much with is more than without, in percent: the median over the iterations, and its interval from `low` to `high`
/// (median_interval). `spans` are those that a rank's trace gets in a step, and `off` is what their calls take, in
/// percent of a step, if there is no trace. The ring's file is in the folder that TMPDIR names, or in /tmp, and has no
/// name.
///
/// With overlap, sums between nodes start as soon as their gradients are ready; without, they all start at the end of
/// the backward pass. `sent` is the number of bytes that a rank sends to other nodes for the gradients of a step, and
/// `early` the percentage of them that the network got before the last gradient was ready. Both are of the first step,
/// means over the ranks, and 0 on one node.
///
/// With audits (audit), each iteration is `steps` steps and one more, which is audited: `with` is that one, `without`
/// the median of those before it, and `cost` the time of an audit in percent of a step. `at_50` is the cost of an audit
/// in every 50th step. The same for the digests of an entry in a ledger (ledger).
///
/// ConfigError, naming --iterations, if they are too few for an interval; or naming --shards. CheckpointError if a rank
/// cannot make the ring's file, PeerError on the others.
void bench_step_cost(Runtime& runtime, const StepOptions& options, const AddRow& add);

}  // namespace lockstep::bench
