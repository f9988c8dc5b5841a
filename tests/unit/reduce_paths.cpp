// Which path a request takes: each exactly one, for every device, layout of nodes, size, order, root and wire type.
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "sync/reduce/paths.hpp"

using namespace lockstep;
using namespace lockstep::detail;

namespace {

using Kind = Request::Kind;

constexpr DeviceKind devices[] = {DeviceKind::cpu, DeviceKind::cuda};
constexpr Kind kinds[] = {Kind::all_reduce, Kind::to_owners, Kind::to_all,
                          Kind::reduce,     Kind::broadcast, Kind::all_gather};
constexpr Order orders[] = {Order::tree, Order::nodes, Order::backend, Order::one_rank};
constexpr DType wires[] = {DType::f32, DType::f64, DType::i64, DType::f16, DType::bf16};

/// Ranks, nodes and ranks of the smallest node; whether all share memory, and whether they can send early.
const std::vector<Layout> path_layouts{{1, 1, 1, false, false}, {2, 1, 2, true, true},  {4, 1, 4, false, true},
                                       {2, 2, 1, false, true},  {4, 2, 2, false, true}, {5, 2, 1, false, true},
                                       {4, 2, 2, true, true},   {4, 2, 2, false, false}};

bool is_sum(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::to_owners || kind == Kind::reduce;
}

/// When a request belongs on a path, said for each path by itself.
bool belongs(Path path, const Facts& at) {
  const bool host = at.device == DeviceKind::cpu, several = host && at.layout.nodes > 1;
  const bool half = at.wire == DType::f16 || at.wire == DType::bf16;
  const bool by_backend =
      is_sum(at.kind) && ((at.order == Order::backend && !(host && half)) || (at.order == Order::nodes && !host));
  const bool by_one = is_sum(at.kind) && at.order == Order::one_rank;
  const bool by_nodes = at.order == Order::nodes && several && at.kind != Kind::all_gather;
  const bool moves = at.kind == Kind::broadcast || at.kind == Kind::all_gather;
  const bool has_slices = !by_backend && !by_one && !by_nodes && !moves;
  const bool shares = has_slices && host && !several && at.layout.shares_memory;
  const bool is_long = at.kind == Kind::to_owners || at.kind == Kind::to_all ||
                       (at.kind == Kind::all_reduce && at.bytes * at.layout.ranks > (64 << 10));
  const bool early = has_slices && several && at.layout.sends_early && is_long;
  switch (path) {
    case Path::in_shared_memory: return shares;
    case Path::by_messages: return (moves && !by_nodes) || (has_slices && !shares && !early);
    case Path::under_way: return early;
    case Path::two_levels: return by_nodes;
    case Path::backend_order: return by_backend;
    case Path::one_rank: return by_one;
  }
  return false;
}

constexpr Path paths[] = {Path::in_shared_memory, Path::by_messages,   Path::under_way,
                          Path::two_levels,       Path::backend_order, Path::one_rank};

}  // namespace

TEST_CASE("each request lands in exactly one path, and every path has some") {
  std::set<Path> taken;
  for (const DeviceKind device : devices)
    for (const Layout& layout : path_layouts)
      for (const Kind kind : kinds)
        for (const std::int64_t bytes : {0, 16, 13'107, 16'384, 16'385, 32'768, 32'769, 64 << 10, 64 << 20})
          for (const Order order : orders)
            for (const DType wire : wires) {
              const Facts facts{device, layout, kind, bytes, order, wire};
              const Path path = path_of(facts);
              taken.insert(path);
              std::vector<Path> home;
              for (const Path each : paths)
                if (belongs(each, facts)) home.push_back(each);
              if (home == std::vector{path}) continue;
              CAPTURE(static_cast<int>(device), layout.ranks, layout.nodes, layout.shares_memory, layout.sends_early,
                      static_cast<int>(kind), bytes, name_of(order), name_of(wire), name_of(path), home.size());
              FAIL_CHECK("another path, or several");
            }
  CHECK(taken == std::set<Path>(std::begin(paths), std::end(paths)));
}

TEST_CASE("what a sum costs is that of its path, for the ranks and the size") {
  const auto cost = [](Path path, const Layout& layout, std::int64_t bytes) {
    const Cost found = cost_of(path, layout, bytes);
    return std::pair{found.messages, found.bytes};
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  const Layout four{4, 2, 2, false, true};
  constexpr std::int64_t mega = 1 << 20;
  CHECK(cost(Path::in_shared_memory, {4, 1, 4, true, true}, mega) == Pair{0, 0});
  CHECK(cost(Path::by_messages, four, 16'384) == Pair{3, 3 * 16'384});
  CHECK(cost(Path::by_messages, four, 8 * mega) == Pair{12, 12 * mega});
  CHECK(cost(Path::under_way, four, mega) == Pair{96, 3 * mega / 2});
  CHECK(cost(Path::two_levels, four, 16'384) == Pair{1, 16'384});
  CHECK(cost(Path::two_levels, four, mega) == Pair{32, mega / 2});
  CHECK(cost(Path::backend_order, four, mega) == Pair{6, 3 * mega / 2});
  CHECK(cost(Path::one_rank, four, mega) == Pair{3, 3 * mega});
}
