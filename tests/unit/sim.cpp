#include <iostream>

#include <catch2/catch.hpp>

#include <lockstep/sim/sim.hpp>
using namespace lockstep;
TEST_CASE("smoke") {
  sim::run({.ranks = 4, .seed = 3, .trace = [](std::string_view l) { std::cout << l << "\n"; }},
           [](Strategy& s, int rank) {
             CHECK(s.reduce(ReduceOp::sum, PerReplica<int>{rank + 1}) == 10);
             s.run([&](ReplicaContext& c) { (void)c.all_reduce(ReduceOp::sum, 1.0); });
           });
}
