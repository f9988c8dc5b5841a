// What keeps processes in step: jobs, groups of ranks, and what these sum and send. The smallest program:
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
// `run_program` (runtime.hpp) calls the function on every rank of an mpirun. Beside this header stand training.hpp,
// with strategies, variables, optimizers and checkpoints, for programs that train a model of their own; models.hpp,
// with the models and the training loop of lockstep-train; tf.hpp, for programs ported from tf.distribute; and
// torch.hpp, for LibTorch's modules. Each includes this one.
//
// Comments mark who calls what. COLL: a collective; every rank must call it, in the same order. LOCAL: one rank may
// call it without the others. README.md explains the other words: rank, replica, task, chief, node, shard.
#pragma once

#include <lockstep/core/base/device_kind.hpp>
#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/core/base/shape.hpp>
#include <lockstep/core/base/version.hpp>
#include <lockstep/core/device/stream.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/values.hpp>
#include <lockstep/job/runtime/runtime.hpp>
#include <lockstep/sync/group/group.hpp>
#include <lockstep/sync/reduce/exact_sum.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>
