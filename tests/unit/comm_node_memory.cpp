// The memory that the ranks of a node share: exchanges, slots, and tensors that all of them reach.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"
#include "support/node_ranks.hpp"

using namespace lockstep;
using lockstep::test::on_node;

namespace {

constexpr int ranks = 3;

std::size_t at(int rank) {
  return static_cast<std::size_t>(rank);
}

/// Memory that rank 0 gets, and that the others find to be another one than was announced.
SharedMemory create_another(std::size_t bytes) {
  SharedMemory memory = SharedMemory::create(bytes);
  std::memset(memory.data(), 0, sizeof memory.handle().proof);
  return memory;
}

SharedMemory create_none(std::size_t) {
  throw CommError{"none on purpose"};
}

}  // namespace

TEST_CASE("an exchange shows every rank what all have laid down, as often as they like") {
  std::vector<int> wrong(at(ranks));
  on_node(ranks, [&](NodeMemory& memory) {
    for (int round = 0; round < 2000; ++round) {
      const int mine = round * ranks + memory.rank();
      std::memcpy(memory.slot(), &mine, sizeof mine);
      if (round % 100 == memory.rank()) std::this_thread::yield();
      const bool same = memory.exchange(round % 2 == 0 ? 7 : at(memory.rank()));
      if (same != (round % 2 == 0)) ++wrong[at(memory.rank())];
      for (int other = 0; other < ranks; ++other) {
        int theirs = 0;
        std::memcpy(&theirs, memory.slots() + other * NodeMemory::slot_stride(), sizeof theirs);
        if (theirs != round * ranks + other) ++wrong[at(memory.rank())];
      }
    }
  });
  CHECK(wrong == std::vector<int>(at(ranks)));
}

TEST_CASE("tasks are begun and ended without fences, each rank at its own pace, and show what was written before") {
  std::vector<int> wrong(at(ranks));
  on_node(ranks, [&](NodeMemory& memory) {
    constexpr std::uint64_t tasks = 1000;
    const SharedAllocation made = memory.allocate(tasks * sizeof(int));
    auto* const mine = reinterpret_cast<int*>(made.memory.data());
    const auto check = [&](bool right) {
      if (!right) ++wrong[at(memory.rank())];
    };
    const auto until = [](auto&& come) {
      while (!come()) std::this_thread::yield();
    };
    check(memory.begun(1) == NodeMemory::Begun::not_by_all && !memory.ended(1) && memory.may_begin(1));
    std::uint64_t begun = 0;
    // As far ahead as there is room.
    const auto begin_more = [&] {
      for (; begun < tasks && memory.may_begin(begun + 1); ++begun) {
        mine[begun] = static_cast<int>(begun) * ranks + memory.rank();
        memory.begin(begun + 1, begun % 3 == 0 ? at(memory.rank()) : 7);
      }
    };
    for (std::uint64_t task = 1; task <= tasks; ++task) {
      until([&] {
        begin_more();
        return memory.begun(task) != NodeMemory::Begun::not_by_all;
      });
      check(begun >= task && begun < task + 200);
      check((memory.begun(task) == NodeMemory::Begun::with_one_word) == ((task - 1) % 3 != 0));
      const auto place = memory.place_of(made.memory.data(), tasks * sizeof(int));
      for (int other = 0; other < ranks; ++other) {
        const auto* const theirs = reinterpret_cast<const int*>(place->first + other * place->stride);
        check(theirs[task - 1] == static_cast<int>(task - 1) * ranks + other);
      }
      memory.end(task);
    }
    until([&] { return memory.ended(tasks); });
  });
  CHECK(wrong == std::vector<int>(at(ranks)));
}

TEST_CASE("memory of all ranks is zeroed, reached by each at equal strides, and outlives the group") {
  constexpr std::size_t bytes = 10'001;
  std::vector<int> wrong(at(ranks));
  std::vector<Buffer> kept(at(ranks));
  on_node(ranks, [&](NodeMemory& memory) {
    const auto check = [&](bool right) {
      if (!right) ++wrong[at(memory.rank())];
    };
    SharedAllocation first = memory.allocate(bytes), second = memory.allocate(bytes);
    check(first.failure.empty() && first.memory.bytes() == bytes && second.memory.bytes() == bytes);
    std::byte* const own = first.memory.data();
    check(std::all_of(own, own + bytes, [](std::byte byte) { return byte == std::byte{}; }));
    std::memset(own, 1 + memory.rank(), bytes);

    const auto place = memory.place_of(own + 100, bytes - 100);
    check(place && place->first + memory.rank() * place->stride == own + 100);
    check(memory.exchange(place->word));  // the same place has the same word everywhere
    for (int other = 0; other < ranks; ++other)
      check(std::to_integer<int>(place->first[other * place->stride]) == 1 + other);
    check(memory.place_of(own + 101, 1)->word != place->word);
    check(memory.place_of(second.memory.data() + 100, 1)->word != place->word);
    check(!memory.place_of(own + 100, bytes - 99));
    check(!memory.place_of(place->first + (memory.rank() + 1) % ranks * place->stride, 1));  // another rank's
    const std::byte outside{};
    check(!memory.place_of(&outside, 1));
    second.memory = {};
    check(memory.place_of(own, bytes).has_value());
    memory.exchange();
    kept[at(memory.rank())] = std::move(first.memory);
  });
  CHECK(wrong == std::vector<int>(at(ranks)));
  for (int rank = 0; rank < ranks; ++rank) CHECK(std::to_integer<int>(kept[at(rank)].data()[bytes - 1]) == 1 + rank);
}

TEST_CASE("where one rank gets no memory, none does, and those that failed know why") {
  const auto [create, failed] = GENERATE(table<SharedMemory (*)(std::size_t), std::vector<bool>>(
      {{create_none, {true, false, false}}, {create_another, {false, true, true}}}));
  std::vector<std::string> failures(at(ranks));
  std::vector<int> got(at(ranks));
  on_node(
      ranks,
      [&](NodeMemory& memory) {
        const SharedAllocation made = memory.allocate(100);
        failures[at(memory.rank())] = made.failure;
        got[at(memory.rank())] = made.memory.data() ? 1 : 0;
        memory.exchange();
      },
      create);
  for (int rank = 0; rank < ranks; ++rank) {
    CHECK(got[at(rank)] == 0);
    CHECK(failures[at(rank)].empty() != failed[at(rank)]);
  }
}
