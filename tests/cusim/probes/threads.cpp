// What threads of a kernel do together.
#include "kernels.hpp"
#include "probe.hpp"

using namespace lockstep::probes;

namespace {

/// What each lane of a warp gets in an exchange of 100 + lane.
std::vector<int> exchanged(Exchange exchange, int operand, int width = 32) {
  const Stream stream;
  const Array<int> to{std::vector<int>(32, -1)};
  OK(launch_shuffle(to.data(), exchange, operand, width, stream));
  wait(stream);
  return to.values();
}

template <class Source>
std::vector<int> from_lanes(const Source& source) {
  std::vector<int> values;
  for (int lane = 0; lane < 32; ++lane) values.push_back(100 + source(lane));
  return values;
}

std::vector<int> numbers(int count) {
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back(i);
  return all;
}

}  // namespace

// CUDA C++ Programming Guide, Built-in variables and Thread hierarchy: blockIdx, threadIdx, blockDim and gridDim in
// three dimensions; each thread of each block runs once.
PROBE(each_thread_has_its_place) {
  const Stream stream;
  const dim3 blocks{2, 3, 2};
  const dim3 threads{5, 2, 4};
  const Array<int> to{std::vector<int>(12 * 40, -1)};
  OK(launch_places(to.data(), blocks, threads, stream));
  wait(stream);
  expect_all("places", to.values(), numbers(12 * 40));
}

// CUDA C++ Programming Guide, Thread hierarchy: a loop with the grid's size as its stride reaches each element once,
// however many threads there are.
PROBE(grid_stride_loop_reaches_each_element_once) {
  const Stream stream;
  for (const int count : {1, 127, 128, 129, 1000}) {
    for (const unsigned blocks : {1u, 3u}) {
      const Array<int> values{std::vector<int>(static_cast<std::size_t>(count), 0)};
      OK(launch_count_up(values.data(), count, dim3(blocks), dim3(64), stream));
      wait(stream);
      expect_all("counts", values.values(), std::vector<int>(static_cast<std::size_t>(count), 1));
    }
  }
}

// CUDA C++ Programming Guide, __syncthreads: accesses to shared memory before it are visible to all threads of the
// block.
PROBE(syncthreads_orders_shared_memory) {
  const Stream stream;
  const Array<int> from{numbers(512)};
  const Array<int> to{std::vector<int>(512, -1)};
  OK(launch_reverse(from.data(), to.data(), 4, stream));
  wait(stream);
  std::vector<int> expected;
  for (int i = 0; i < 512; ++i) expected.push_back(i / 128 * 128 + 127 - i % 128);
  expect_all("reversed blocks", to.values(), expected);
}

// CUDA C++ Programming Guide, __syncwarp: orders accesses to memory among the participating lanes.
PROBE(syncwarp_orders_shared_memory) {
  const Stream stream;
  const Array<int> to{std::vector<int>(32, -1)};
  OK(launch_hand_around(to.data(), stream));
  wait(stream);
  std::vector<int> expected;
  for (int lane = 0; lane < 32; ++lane) expected.push_back((lane + 5) % 32);
  expect_all("values after five rounds", to.values(), expected);
}

// CUDA C++ Programming Guide, Warp shuffle functions: __shfl_sync reads the value of the given lane, modulo the width,
// in the lane's own section.
PROBE(shuffle_reads_the_given_lane) {
  expect_all("lane 5", exchanged(Exchange::index, 5), from_lanes([](int) { return 5; }));
  expect_all("lane 37 of 32", exchanged(Exchange::index, 37), from_lanes([](int) { return 5; }));
  expect_all("lane 3 of each 8", exchanged(Exchange::index, 3, 8),
             from_lanes([](int lane) { return lane / 8 * 8 + 3; }));
  expect_all("lane 11 of each 8", exchanged(Exchange::index, 11, 8),
             from_lanes([](int lane) { return lane / 8 * 8 + 3; }));
}

// CUDA C++ Programming Guide, Warp shuffle functions: __shfl_up_sync reads a lower lane; lanes without one in their
// section keep their own value.
PROBE(shuffle_up_keeps_the_lowest) {
  expect_all("up by 3", exchanged(Exchange::up, 3), from_lanes([](int lane) { return lane < 3 ? lane : lane - 3; }));
  expect_all("up by 3 of each 8", exchanged(Exchange::up, 3, 8),
             from_lanes([](int lane) { return lane % 8 < 3 ? lane : lane - 3; }));
}

// CUDA C++ Programming Guide, Warp shuffle functions: __shfl_down_sync reads a higher lane; lanes without one in their
// section keep their own value.
PROBE(shuffle_down_keeps_the_highest) {
  expect_all("down by 3", exchanged(Exchange::down, 3),
             from_lanes([](int lane) { return lane > 28 ? lane : lane + 3; }));
  expect_all("down by 3 of each 8", exchanged(Exchange::down, 3, 8),
             from_lanes([](int lane) { return lane % 8 > 4 ? lane : lane + 3; }));
}

// CUDA C++ Programming Guide, Warp shuffle functions: __shfl_xor_sync reads the lane whose number differs in the given
// bits; with a width, earlier sections can be read, and lanes that would read a later one keep their own value.
PROBE(shuffle_xor_reads_across) {
  for (const int bits : {0, 1, 16, 31})
    expect_all("xor", exchanged(Exchange::exclusive_or, bits), from_lanes([&](int lane) { return lane ^ bits; }));
  expect_all("xor 4 of each 8", exchanged(Exchange::exclusive_or, 4, 8), from_lanes([](int lane) { return lane ^ 4; }));
  expect_all("xor 8 of each 8", exchanged(Exchange::exclusive_or, 8, 8),
             from_lanes([](int lane) { return (lane & 8) != 0 ? lane ^ 8 : lane; }));
}

// CUDA C++ Programming Guide, Warp shuffle functions: with exclusive or, all lanes get the sum (Reduction across a
// warp).
PROBE(shuffles_sum_over_a_warp) {
  const Stream stream;
  const Array<int> to{std::vector<int>(32, -1)};
  OK(launch_warp_sum(to.data(), stream));
  wait(stream);
  expect_all("sums", to.values(), std::vector<int>(32, 496));
}

// CUDA C++ Programming Guide, Warp vote functions: __ballot_sync has a bit for each lane of the mask whose predicate is
// not zero.
PROBE(ballot_counts_the_lanes_of_its_mask) {
  const Stream stream;
  for (const unsigned mask : {0xffffffffu, 0x0000ffffu, 0x80000007u, 0x2u}) {
    const Array<unsigned> to{std::vector<unsigned>(32, 1)};
    OK(launch_ballot(to.data(), mask, stream));
    wait(stream);
    std::vector<unsigned> expected;
    for (unsigned lane = 0; lane < 32; ++lane) expected.push_back(mask >> lane & 1 ? mask & 0xaaaaaaaau : 0);
    expect_all("ballots", to.values(), expected);
  }
}

// CUDA C++ Programming Guide, Warp vote functions: __any_sync and __all_sync.
PROBE(votes_are_of_any_and_all) {
  const Stream stream;
  const struct {
    int any_of;
    int all_of;
    int expected;
  } cases[] = {{31, 32, 3}, {32, 32, 1}, {0, 31, 2}, {-1, 0, 0}};
  for (const auto& [any_of, all_of, expected] : cases) {
    const Array<int> to{std::vector<int>(32, -1)};
    OK(launch_votes(to.data(), any_of, all_of, stream));
    wait(stream);
    expect_all("2 any + all", to.values(), std::vector<int>(32, expected));
  }
}

// CUDA C++ Programming Guide, Atomic functions: no other thread interferes with a read-modify-write of one.
PROBE(atomic_functions_lose_nothing) {
  const Stream stream;
  const Array<int> counters{{0, -1, 1 << 30, 0}};
  OK(launch_atomics(counters.data(), 6, 96, stream));
  wait(stream);
  expect_all("counters", counters.values(), {6 * 96, 6 * 96 - 1, 0, 6 * 96});
}
