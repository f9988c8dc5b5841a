// Replicas in step, for programs that train a model of their own: strategies and variables, optimizers, sums in the
// fixed order, checkpoints, files of weights, and simulated jobs for tests (sim.hpp). The smallest program, in which
// each rank pulls the weight to its own number:
//
//   #include <cstdio>
//   #include <lockstep/training.hpp>
//   using namespace lockstep;
//
//   int main(int argc, char** argv) {
//     return run_program(argc, argv, {.device = "cpu"}, [](Runtime& runtime) {
//       Strategy& strategy = runtime.strategy();
//       const auto weight = strategy.create_variable({.name = "weight"}, [] { return Tensor::scalar(0.0); });
//       Sgd sgd{{.learning_rate = 0.5}};
//       for (int step = 0; step < 3; ++step)
//         strategy.run([&](ReplicaContext& context) {
//           const double error = weight.local().item<double>() - context.replica_id_in_sync_group();
//           return sgd.apply_gradients(context, {{Tensor::scalar(error), weight}}, 1);  // one agreement of all ranks
//         });
//       if (runtime.is_chief()) std::printf("%g\n", weight.local().item<double>());
//     });
//   }
#pragma once

#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/base/philox.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/core/tensor/sparse_tensor.hpp>
#include <lockstep/core/values/locality.hpp>
#include <lockstep/core/values/nest.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/sync/checkpoint/checkpoint.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/audit.hpp>
#include <lockstep/sync/optim/learning_rate.hpp>
#include <lockstep/sync/optim/optimizer.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/sync/strategy/variable.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>
