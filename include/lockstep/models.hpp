// What lockstep-train trains with: models, kernels, data and the training loop. For programs that use its models, or
// bring one for its loop. They link lockstep-models. The smallest one:
//
//   #include <lockstep/models.hpp>
//   using namespace lockstep;
//
//   int main(int argc, char** argv) {
//     return run_program(argc, argv, {}, [&](Runtime& runtime) {
//       Strategy& strategy = runtime.strategy();
//       const LabelledData data = LabelledData::load(argc > 1 ? argv[1] : "data", {});  // a folder of images
//       const auto model = nn::make_mlp(strategy, {.inputs = 784, .hidden = {30}, .classes = 10},
//                                       ops::make_kernels(ops::Kernels::Choice::automatic, {}, strategy.stream()));
//       Sgd sgd{{.learning_rate = 0.05, .momentum = 0.9}};
//       Observer observer;  // prints nothing
//       fit(strategy, *model, sgd, {*data.train, *data.test}, {.global_batch = 100, .steps = 50}, observer);
//     });
//   }
#pragma once

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
#include <lockstep/training.hpp>
