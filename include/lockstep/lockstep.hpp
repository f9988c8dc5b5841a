// Everything a trainer needs.
//
// Two words in comments say who calls what. COLL: a collective, which every rank must call, in the same order. LOCAL:
// one rank may call it alone. README.md has the other words: rank, replica, task, chief, node, shard.
#pragma once

#include <lockstep/base/digest.hpp>
#include <lockstep/base/dtype.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/base/half.hpp>
#include <lockstep/base/log.hpp>
#include <lockstep/base/philox.hpp>
#include <lockstep/base/shape.hpp>
#include <lockstep/checkpoint/checkpoint.hpp>
#include <lockstep/cluster/cluster_spec.hpp>
#include <lockstep/cluster/device_binding.hpp>
#include <lockstep/cluster/rank_map.hpp>
#include <lockstep/cluster/tf_config.hpp>
#include <lockstep/comm/communicator.hpp>
#include <lockstep/control/tag.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/input/batch.hpp>
#include <lockstep/input/batch_schedule.hpp>
#include <lockstep/input/idx.hpp>
#include <lockstep/input/input_context.hpp>
#include <lockstep/input/row_sequence.hpp>
#include <lockstep/input/sample_order.hpp>
#include <lockstep/input/shards.hpp>
#include <lockstep/nn/mlp.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/reduce/fixed_order.hpp>
#include <lockstep/reduce/reduction_options.hpp>
#include <lockstep/runtime/runtime.hpp>
#include <lockstep/sim/sim.hpp>
#include <lockstep/strategy/colocation.hpp>
#include <lockstep/strategy/context.hpp>
#include <lockstep/strategy/distributed_input.hpp>
#include <lockstep/strategy/extended.hpp>
#include <lockstep/strategy/multi_step.hpp>
#include <lockstep/strategy/named_values.hpp>
#include <lockstep/strategy/replica_context.hpp>
#include <lockstep/strategy/strategy.hpp>
#include <lockstep/strategy/variable.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/train/dataset_iterator.hpp>
#include <lockstep/train/fault.hpp>
#include <lockstep/train/fit.hpp>
#include <lockstep/train/image_training.hpp>
#include <lockstep/train/iterator.hpp>
#include <lockstep/train/metrics_file.hpp>
#include <lockstep/train/observer.hpp>
#include <lockstep/train/progress.hpp>
#include <lockstep/values/comparable.hpp>
#include <lockstep/values/locality.hpp>
#include <lockstep/values/map_output.hpp>
#include <lockstep/values/values.hpp>
