// Everything a trainer needs.
//
//   void train(Runtime& runtime) {
//     const PerReplica<double> count = runtime.strategy().run(
//         [](ReplicaContext& context) { return context.all_reduce(ReduceOp::sum, 1.0); });
//     if (runtime.is_chief()) std::printf("%g replicas\n", count.local());
//   }
//
// `run_program` (runtime.hpp) calls such a function on every rank of an mpirun.
//
// Comments mark who calls what. COLL: a collective; every rank must call it, in the same order. LOCAL: one rank may
// call it without the others. README.md explains the other words: rank, replica, task, chief, node, shard.
#pragma once

#include <lockstep/base/device_kind.hpp>
#include <lockstep/base/dtype.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/base/here.hpp>
#include <lockstep/base/hex.hpp>
#include <lockstep/base/log.hpp>
#include <lockstep/base/philox.hpp>
#include <lockstep/base/shape.hpp>
#include <lockstep/checkpoint/checkpoint.hpp>
#include <lockstep/checkpoint/checkpoint_manager.hpp>
#include <lockstep/checkpoint/weights.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/estimator/batch_rows.hpp>
#include <lockstep/estimator/estimator_spec.hpp>
#include <lockstep/estimator/replicate_model_fn.hpp>
#include <lockstep/estimator/tower.hpp>
#include <lockstep/feed/dataset_iterator.hpp>
#include <lockstep/feed/distribute.hpp>
#include <lockstep/feed/iterator.hpp>
#include <lockstep/fit/fit.hpp>
#include <lockstep/fit/observer.hpp>
#include <lockstep/group/group.hpp>
#include <lockstep/input/augmentation.hpp>
#include <lockstep/input/batch.hpp>
#include <lockstep/input/idx.hpp>
#include <lockstep/input/labelled_data.hpp>
#include <lockstep/input/sample_source.hpp>
#include <lockstep/input/schema.hpp>
#include <lockstep/input/text.hpp>
#include <lockstep/nn/generate.hpp>
#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/nn/model.hpp>
#include <lockstep/nn/models.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/optim/adamw.hpp>
#include <lockstep/optim/audit.hpp>
#include <lockstep/optim/learning_rate.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/order/input_context.hpp>
#include <lockstep/order/range.hpp>
#include <lockstep/record/run_record.hpp>
#include <lockstep/reduce/fixed_order.hpp>
#include <lockstep/reduce/reduction_options.hpp>
#include <lockstep/reduce/sum_list.hpp>
#include <lockstep/runtime/runtime.hpp>
#include <lockstep/sim/sim.hpp>
#include <lockstep/strategy/distributed_input.hpp>
#include <lockstep/strategy/extended.hpp>
#include <lockstep/strategy/multi_step.hpp>
#include <lockstep/strategy/replica_context.hpp>
#include <lockstep/strategy/strategy.hpp>
#include <lockstep/strategy/variable.hpp>
#include <lockstep/tensor/sparse_tensor.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/locality.hpp>
#include <lockstep/values/nest.hpp>
#include <lockstep/values/values.hpp>
