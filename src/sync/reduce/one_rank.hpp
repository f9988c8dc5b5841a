// Path::one_rank: one rank combines what all have, in the fixed tree or by a function of the program's.
//
// For S bytes on each of n ranks, a piece at a time of which n fit into 4 MiB:   messages   bytes
//   1. every rank sends its own to the root, or to rank 0,                       n - 1      (n - 1) S to the root
//   2. which combines the n parts, and divides for a mean
// Then, if the result is for all:
//   3. rank 0 broadcasts it                                                      n - 1      (n - 1) S in all
//
// The link of one rank carries n - 1 times the message each way. In return all parts are in one place, in rank order,
// and can be combined in any way. A sum in slices is made whole.
#pragma once

#include <utility>

#include "core/comm/communicator.hpp"
#include "sync/reduce/messages.hpp"
#include "sync/reduce/request.hpp"

namespace lockstep::detail {

class OneRank {
 public:
  /// If `accumulate` is empty, sums. `communicator` must outlive this object.
  OneRank(Communicator& communicator, ReductionOptions::Accumulate accumulate)
      : communicator_{communicator}, accumulate_{std::move(accumulate)} {}

  /// COLL. A sum of one flat tensor.
  void run(const Request& request);

 private:
  void combine(const TensorView& piece, const SumRule& rule, int root);

  Communicator& communicator_;
  ReductionOptions::Accumulate accumulate_;
  Scratch gathered_;
};

}  // namespace lockstep::detail
