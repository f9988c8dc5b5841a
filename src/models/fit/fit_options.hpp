// What is asked of the options of `fit`.
#pragma once

#include <string>

#include <lockstep/models/fit/fit.hpp>

namespace lockstep::detail {

/// InvalidArgument as `fit` says, for what this rank can see alone.
void require_valid(const FitOptions& options, nn::Model& model, const FitOptions::Samples& data);

/// What decides the samples of a step, and which runs there are, as the ranks compare it.
std::string text_of(const FitOptions::Samples& data, const FitOptions& options);

}  // namespace lockstep::detail
