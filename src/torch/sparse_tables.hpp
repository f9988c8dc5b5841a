// Which parameters of a module are tables with sparse gradients.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace lockstep::libtorch {

/// The weights of Embedding and EmbeddingBag with `sparse(true)` that no other module has registered. All ranks find
/// the same ones in modules that are alike.
std::vector<at::Tensor> sparse_tables(const ::torch::nn::Module& module);

/// The names of all embedding weights, sparse or not, with a `max_norm`: their forward pass changes the rows that it
/// reads.
std::vector<std::string> tables_with_max_norm(const ::torch::nn::Module& module);

}  // namespace lockstep::libtorch
