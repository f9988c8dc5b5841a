#include "runtime/graph.hpp"

#include <map>

#include "runtime/call.hpp"
#include "runtime/world.hpp"

using namespace cusim;

struct CUgraph_st {
  std::vector<Node> nodes;  ///< each after those it comes after
  cudaStream_t origin = nullptr;
};

struct CUgraphExec_st {
  std::vector<Node> nodes;
  cudaStream_t origin = nullptr;
  std::map<cudaStream_t, cudaStream_t> branches;  ///< for each other captured stream, one of the graph's own
  PiecePointer end;                               ///< of the last launch: two do not overlap
};

namespace {

struct Graphs {
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> launchable;
};

/// Under the world's lock.
Graphs& graphs() {
  static Graphs* const all = new Graphs;
  return *all;
}

cudaError_t instantiate(cudaGraphExec_t* made, cudaGraph_t graph) {
  if (!made) return cudaErrorInvalidValue;
  const Lock lock{world().mutex};
  if (!graphs().graphs.contains(graph)) return cudaErrorInvalidValue;
  *made = new CUgraphExec_st{graph->nodes, graph->origin, {}, nullptr};
  graphs().launchable.insert(*made);
  return cudaSuccess;
}

/// In a capture, the graph's nodes become nodes of the capture.
cudaError_t launch_in_capture(cudaGraphExec_t graph, cudaStream_t stream) {
  Capture& capture = *stream->capture;
  if (!capture.is_valid) return cudaErrorStreamCaptureInvalidated;
  const std::size_t offset = capture.nodes.size();
  std::vector<std::size_t> all = stream->frontier;
  for (const Node& node : graph->nodes) {
    Node own = node;
    own.stream = stream;
    for (std::size_t& earlier : own.after) earlier += offset;
    own.after.insert(own.after.end(), stream->frontier.begin(), stream->frontier.end());
    all.push_back(capture.nodes.size());
    capture.nodes.push_back(std::move(own));
  }
  stream->frontier = std::move(all);
  return cudaSuccess;
}

cudaStream_t branch_of(cudaGraphExec_t graph, const Node& node, cudaStream_t stream) {
  if (node.stream == graph->origin) return stream;
  cudaStream_t& branch = graph->branches[node.stream];
  if (!branch) branch = make_stream(stream->device, cudaStreamNonBlocking, 0);
  return branch;
}

void launch_now(cudaGraphExec_t graph, cudaStream_t stream) {
  const auto nothing = [] { return true; };
  std::vector<PiecePointer> before;
  if (graph->end) before.push_back(graph->end);
  const PiecePointer begin = append(stream, "cudaGraphLaunch", nothing, false, before);
  std::vector<PiecePointer> pieces;
  for (const Node& node : graph->nodes) {
    std::vector<PiecePointer> after{begin};
    for (const std::size_t earlier : node.after) after.push_back(pieces[earlier]);
    pieces.push_back(append(branch_of(graph, node, stream), node.what, node.work, node.is_host, after));
  }
  graph->end = append(stream, "the end of a graph", nothing, false, pieces);
}

cudaError_t launch(cudaGraphExec_t graph, cudaStream_t handle) {
  Lock lock{world().mutex};
  if (!graphs().launchable.contains(graph)) return cudaErrorInvalidValue;
  cudaStream_t const stream = stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t refused = refuse_legacy(stream); refused != cudaSuccess) return refused;
  if (stream->capture) return launch_in_capture(graph, stream);
  launch_now(graph, stream);
  run_eagerly(lock);
  return cudaSuccess;
}

cudaError_t destroy(cudaGraphExec_t graph) {
  const Lock lock{world().mutex};
  if (graphs().launchable.erase(graph) == 0) return cudaErrorInvalidValue;
  for (const auto& [captured, own] : graph->branches) end_stream(own);
  delete graph;
  return cudaSuccess;
}

}  // namespace

cudaGraph_t cusim::make_graph(std::vector<Node> nodes, cudaStream_t origin) {
  auto* const made = new CUgraph_st{std::move(nodes), origin};
  graphs().graphs.insert(made);
  return made;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return call("cudaGraphInstantiate", [&] { return instantiate(made, graph); });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return call("cudaGraphInstantiateWithFlags", [&] { return instantiate(made, graph); });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return call_on("cudaGraphLaunch", stream, [&] { return launch(graph, stream); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return call("cudaGraphGetNodes", [&] {
    const Lock lock{world().mutex};
    if (!graphs().graphs.contains(graph) || !count) return cudaErrorInvalidValue;
    if (nodes) return cudaErrorNotSupported;
    *count = graph->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", [&] {
    const Lock lock{world().mutex};
    if (graphs().graphs.erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return call("cudaGraphExecDestroy", [&] { return destroy(graph); });
}
