// Requests beside a program that does something else: while others have not come, on several threads, and without
// calls. LOCKSTEP_TEST_SEEDS says how many random programs of threads (6), and LOCKSTEP_TEST_BASE where their seeds
// begin (0).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <mpi.h>

#include <lockstep/sync/group/group.hpp>

#include "support/any_request.hpp"
#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Group everyone() {
  return runtime().strategy().ranks();
}

/// The ranks whose bit is set.
std::vector<int> ranks_in(unsigned bits) {
  std::vector<int> some;
  for (int each = 0; each < ranks(); ++each)
    if (bits >> each & 1) some.push_back(each);
  return some;
}

bool may_call_on_any_thread() {
  int level = 0;
  MPI_Query_thread(&level);
  return level == MPI_THREAD_MULTIPLE;
}

int number_of(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

/// A folder that all ranks know, and that rank 0 removes.
class CommonFolder {
 public:
  CommonFolder() {
    char path[64] = "/tmp/lockstep-requests-XXXXXX";
    if (rank() == 0 && !::mkdtemp(path)) std::abort();
    std::vector<std::uint8_t> bytes(std::begin(path), std::end(path));
    everyone().broadcast(std::span{bytes}, 0);
    path_ = reinterpret_cast<const char*>(bytes.data());
  }
  CommonFolder(const CommonFolder&) = delete;
  CommonFolder& operator=(const CommonFolder&) = delete;
  ~CommonFolder() {
    everyone().submit_barrier().wait();
    if (rank() == 0) std::filesystem::remove_all(path_);
  }

  void enter() const { std::filesystem::create_directory(path_ / std::to_string(rank())); }
  int entered() const {
    const std::filesystem::directory_iterator all{path_};
    return static_cast<int>(std::distance(begin(all), end(all)));
  }

 private:
  std::filesystem::path path_;
};

struct Member {
  Group group;
  std::uint64_t number;
};

/// What a thread of each rank does with groups of its own: the same on every rank, but for the orders.
void use_groups(std::span<Member> groups, std::uint64_t seed, std::string& wrong) {
  std::mt19937_64 own{seed * 64 + static_cast<std::uint64_t>(rank())};
  for (int round = 0; round < 4; ++round) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < groups.size(); ++i) order.insert(order.end(), 3, i);
    std::ranges::shuffle(order, own);
    std::vector<std::unique_ptr<AnyRequest>> all;
    std::vector<std::uint64_t> submitted(groups.size());
    for (const std::size_t i : order) {
      std::mt19937_64 common{((seed * 64 + groups[i].number) * 8 + static_cast<std::uint64_t>(round)) * 4 +
                             submitted[i]++};
      const AnyRequest::Kind kind = AnyRequest::drawn(common);
      const std::size_t count = common() % 3 == 0 ? 60'000 : common() % 9;
      all.push_back(std::make_unique<AnyRequest>(groups[i].group, kind, count));
    }
    std::ranges::shuffle(all, own);
    for (const auto& each : all) {
      if (own() % 2 == 0) (void)each->test();
      each->wait();
      if (!each->is_right()) wrong = "a request";
    }
  }
}

}  // namespace

TEST_CASE("a hundred megabytes are submitted while other ranks have not come, and may not come for long") {
  Group all = everyone(), turned = all.subset(std::vector<int>([] {
    std::vector<int> ranks_down = ranks_in(~0u);
    std::ranges::reverse(ranks_down);
    return ranks_down;
  }()));
  std::vector<float> values(25'000'000, static_cast<float>(rank() + 1));
  const auto submit = [&] { return all.submit_all_reduce(std::span{values}); };
  std::optional<Group::Request> request;
  if (rank() == 0) {
    request = submit();
    CHECK_FALSE(request->test());
  }
  // The others submit when this is done, for which rank 0 must have come out of its call.
  int ones[] = {1};
  turned.all_reduce(std::span{ones});
  CHECK(ones[0] == ranks());
  if (rank() != 0) request = submit();
  request->wait();
  CHECK(std::ranges::count(values, static_cast<float>(triangle())) == std::ssize(values));
}

TEST_CASE("a request goes on by itself while a rank makes no call") {
  if (!may_call_on_any_thread()) return;
  const CommonFolder folder;
  std::vector<float> values(2'000'000, static_cast<float>(rank() + 1));
  Group::Request request = everyone().submit_all_reduce(std::span{values});
  if (!odd_one()) request.wait();
  folder.enter();
  while (folder.entered() < ranks()) std::this_thread::yield();  // the last rank does nothing else
  request.wait();
  CHECK(std::ranges::count(values, static_cast<float>(triangle())) == std::ssize(values));
}

TEST_CASE("threads submit to groups of their own, which overlap, in random orders") {
  if (!may_call_on_any_thread()) return;
  constexpr std::size_t threads = 3, groups_each = 2;
  const int base = number_of("LOCKSTEP_TEST_BASE", 0), count = number_of("LOCKSTEP_TEST_SEEDS", 6);
  for (int seed = base; seed < base + count; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 common{static_cast<std::uint64_t>(seed)};
    std::vector<std::vector<Member>> groups(threads);
    for (std::size_t i = 0; i < threads * groups_each; ++i) {
      const unsigned bits =
          static_cast<unsigned>(common() % (1u << ranks())) | 1u << common() % static_cast<unsigned>(ranks());
      if (!(bits >> rank() & 1)) continue;
      groups[i % threads].push_back({everyone().subset(ranks_in(bits)), i});
    }
    std::vector<std::string> wrong(threads);
    std::vector<std::thread> running;
    for (std::size_t i = 0; i < threads; ++i)
      running.emplace_back([&, i] { use_groups(groups[i], static_cast<std::uint64_t>(seed), wrong[i]); });
    for (std::thread& each : running) each.join();
    CHECK(wrong == std::vector<std::string>(threads));
    expect_in_step();
  }
}
