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

#include <lockstep/core/base/device_kind.hpp>
#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/core/base/philox.hpp>
#include <lockstep/core/base/shape.hpp>
#include <lockstep/core/device/stream.hpp>
#include <lockstep/core/order/input_context.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/core/tensor/sparse_tensor.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/locality.hpp>
#include <lockstep/core/values/nest.hpp>
#include <lockstep/core/values/values.hpp>
#include <lockstep/job/runtime/runtime.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/models/fit/observer.hpp>
#include <lockstep/models/input/augmentation.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/input/idx.hpp>
#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/input/sample_source.hpp>
#include <lockstep/models/input/schema.hpp>
#include <lockstep/models/input/text.hpp>
#include <lockstep/models/nn/generate.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/models/nn/models.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/models/record/run_record.hpp>
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
#include <lockstep/sync/strategy/distributed_input.hpp>
#include <lockstep/sync/strategy/extended.hpp>
#include <lockstep/sync/strategy/multi_step.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/sync/strategy/variable.hpp>
#include <lockstep/tf/estimator/batch_rows.hpp>
#include <lockstep/tf/estimator/estimator_spec.hpp>
#include <lockstep/tf/estimator/replicate_model_fn.hpp>
#include <lockstep/tf/estimator/tower.hpp>
#include <lockstep/tf/feed/dataset_iterator.hpp>
#include <lockstep/tf/feed/distribute.hpp>
#include <lockstep/tf/feed/iterator.hpp>
