// From options to a model of images.
#pragma once

#include <memory>

#include <lockstep/input/idx.hpp>
#include <lockstep/nn/model.hpp>
#include <lockstep/train/image_training.hpp>

namespace lockstep {

/// ConfigError for a model that has no place for these images, or none in the node's memory: the system may promise the
/// memory, and kill ranks that use it.
void require_model_fits(const ImageTrainingOptions& options, const ImageSet& images);

/// COLL. Creates the variables.
std::unique_ptr<nn::Model> make_image_model(Strategy& strategy, const ImageTrainingOptions& options,
                                            const ImageSet& images, std::shared_ptr<const ops::Kernels> kernels);

}  // namespace lockstep
