// Graphs: captured pieces of work, each after others.
#pragma once

#include <vector>

#include "runtime/world.hpp"

namespace cusim {

/// Of a capture that began in the stream `origin`.
cudaGraph_t make_graph(std::vector<Node> nodes, cudaStream_t origin);

}  // namespace cusim
