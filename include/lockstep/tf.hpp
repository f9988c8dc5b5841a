// What a program ported from tf.distribute finds under the names that it had there: distributed input, loops of steps,
// replicated model functions. The smallest one:
//
//   #include <cstdio>
//   #include <lockstep/tf.hpp>
//   using namespace lockstep;
//
//   int main(int argc, char** argv) {
//     return run_program(argc, argv, {.device = "cpu"}, [](Runtime& runtime) {
//       const Tensor samples = Tensor::from({1.F, 2.F, 3.F, 4.F, 5.F}, {5});
//       auto batches = make_dataset_iterator(runtime.strategy(), samples, {.global_batch_size = 2, .shuffle_seed =
//       {}}); const auto step = [](ReplicaContext& context, const Tensor& batch) {
//         double sum = 0;  // of no samples at all, if this rank's batch is empty
//         for (const float value : batch.view().elements<float>()) sum += value;
//         return context.all_reduce(ReduceOp::sum, sum);
//       };
//       while (const auto sum = runtime.strategy().run_on_next(step, batches))
//         if (runtime.is_chief()) std::printf("%g\n", sum->local());
//     });
//   }
#pragma once

#include <lockstep/core/order/input_context.hpp>
#include <lockstep/tf/estimator/estimator_spec.hpp>
#include <lockstep/tf/estimator/replicate_model_fn.hpp>
#include <lockstep/tf/estimator/tower.hpp>
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/tf/feed/dataset_iterator.hpp>
#include <lockstep/tf/feed/distribute.hpp>
#include <lockstep/tf/feed/iterator.hpp>
#include <lockstep/tf/feed/multi_step.hpp>
#include <lockstep/training.hpp>
