// The work of cublasLtMatmul: one piece, or two that hand sums over in the workspace.
#pragma once

#include "core.hpp"
#include "cublaslt/algorithms.hpp"
#include "cublaslt/operands.hpp"
#include "cublaslt/product.hpp"

namespace cusim::cublaslt {

/// A call as its work needs it: nothing of the host's memory.
struct MatmulCall {
  Product product;
  Algorithm algorithm;
  Operands operands;
  double alpha;
  double beta;
  FaultKind fault;  ///< none, late or hang
};

/// Enqueues the work of a call that was checked.
cudaError_t enqueue_matmul(const MatmulCall& call, cudaStream_t stream);

}  // namespace cusim::cublaslt
