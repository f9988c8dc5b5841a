// What keeps replicas in step: for programs with models of their own. The smallest one:
//
//   #include <cstdio>
//   #include <span>
//   #include <lockstep/lockstep.hpp>
//
//   int main(int argc, char** argv) {
//     return lockstep::run_program(argc, argv, {}, [](lockstep::Runtime& runtime) {
//       lockstep::Group all = runtime.group();
//       double sums[] = {0.1 * all.rank(), 1};
//       all.all_reduce(std::span{sums});
//       if (all.rank() == 0) std::printf("%g from %g ranks\n", sums[0], sums[1]);
//     });
//   }
//
// `run_program` (runtime.hpp) calls the function on every rank of an mpirun. Beside this header stand models.hpp, with
// the models and the training loop of lockstep-train; tf.hpp, for programs ported from tf.distribute; and torch.hpp,
// for LibTorch's modules.
//
// Comments mark who calls what. COLL: a collective; every rank must call it, in the same order. LOCAL: one rank may
// call it without the others. README.md explains the other words: rank, replica, task, chief, node, shard.
#pragma once

#include <lockstep/core/base/device_kind.hpp>
#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/core/base/philox.hpp>
#include <lockstep/core/base/shape.hpp>
#include <lockstep/core/device/stream.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/core/tensor/sparse_tensor.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/locality.hpp>
#include <lockstep/core/values/nest.hpp>
#include <lockstep/core/values/values.hpp>
#include <lockstep/job/runtime/runtime.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/sync/checkpoint/checkpoint.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>
#include <lockstep/sync/group/group.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/audit.hpp>
#include <lockstep/sync/optim/learning_rate.hpp>
#include <lockstep/sync/optim/optimizer.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>
#include <lockstep/sync/reduce/sum_list.hpp>
#include <lockstep/sync/strategy/extended.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/sync/strategy/variable.hpp>
