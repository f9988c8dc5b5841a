#include "job/sim/mpi_routes.hpp"

#include "job/sim/job.hpp"

namespace lockstep::sim {
namespace {

int size_of(const Plane& plane) {
  return static_cast<int>(plane.members().size());
}

int depth_of(const Plane& plane) {
  return Rounds{0, size_of(plane)}.count();
}

/// Messages that follow each other, as many as the algorithm is deep, with so many bytes in all.
Route in_rounds(const Plane& plane, Sent sent, std::int64_t bytes) {
  return {.sent = sent, .length = plane.job().network()->chain(plane.members(), depth_of(plane), bytes)};
}

/// To how many ranks one at that distance from the root sends in a binomial tree: the distances that differ from its
/// own in one bit below its lowest.
std::int64_t children_of(int distance, int ranks) {
  std::int64_t children = 0;
  for (int bit = 1; distance + bit < ranks && (distance & bit) == 0; bit *= 2) ++children;
  return children;
}

}  // namespace

Route broadcast_route(const Plane& plane, int place, int root, std::int64_t bytes) {
  if (!plane.job().network()) return {};
  const int ranks = size_of(plane);
  const std::int64_t children = children_of((place + ranks - root) % ranks, ranks);
  return in_rounds(plane, {children, children * bytes}, depth_of(plane) * bytes);
}

Route reduce_route(const Plane& plane, int place, int root, std::int64_t bytes) {
  if (!plane.job().network()) return {};
  return in_rounds(plane, place == root ? Sent{} : Sent{1, bytes}, depth_of(plane) * bytes);
}

Route all_reduce_route(const Plane& plane, std::int64_t bytes) {
  if (!plane.job().network()) return {};
  const std::int64_t depth = depth_of(plane);
  return in_rounds(plane, {depth, depth * bytes}, depth * bytes);
}

Route all_gather_route(const Plane& plane, std::int64_t bytes, std::int64_t own_bytes) {
  if (!plane.job().network()) return {};
  return in_rounds(plane, {depth_of(plane), bytes - own_bytes}, bytes - own_bytes);
}

Route gather_route(const Plane& plane, int place, int root, std::int64_t bytes) {
  if (!plane.job().network() || place == root) return {};
  return {.bytes_to = [root, bytes](int to) { return to == root ? bytes : 0; }, .is_of_mpi = true};
}

void count_split(const Plane& plane, int rank) {
  if (Network* const network = plane.job().network()) network->of(rank).collectives += all_reduce_route(plane, 8).sent;
}

}  // namespace lockstep::sim
