// Host values that replica 0 alone knows.
#include <array>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct Plain {
  double rate;
  char kind;
  std::array<int, 3> sizes;

  bool operator==(const Plain&) const = default;
};

struct Settings {
  std::string path;
  std::vector<std::string> classes;
  std::optional<Plain> plain;
  int own = 0;  // not in the Nest

  bool operator==(const Settings&) const = default;
};

/// Members that begin with something.
struct Defaults {
  std::vector<int> sizes = {1, 2};
  std::optional<double> rate = 0.1;
  std::map<std::string, int> counts = {{"own", 1}, {"other", 2}};

  bool operator==(const Defaults&) const = default;
};

Strategy& strategy() {
  return runtime().strategy();
}

/// A text that no two ranks share, in content or in length.
std::string text_of(int rank, std::size_t length) {
  std::string text(length + static_cast<std::size_t>(rank), ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + (i * 7 + i / 1000) % 23);
  return text;
}

std::uint64_t meetings() {
  return inside(strategy()).group().meeting().meetings();
}

}  // namespace

template <>
struct lockstep::Nest<Settings> {
  static constexpr auto members = std::tuple{&Settings::path, &Settings::classes, &Settings::plain};
};

template <>
struct lockstep::Nest<Defaults> {
  static constexpr auto members = std::tuple{&Defaults::sizes, &Defaults::rate, &Defaults::counts};
};

TEST_CASE("every rank gets replica 0's text, whatever its length") {
  // The first message holds 1016 bytes, of which 8 are the length of the text.
  for (const std::size_t length : {0UL, 5UL, 1007UL, 1008UL, 1009UL, 3'000'000UL}) {
    const auto before = meetings();
    CHECK(strategy().broadcast_object(text_of(rank(), length)).value() == text_of(0, length));
    CHECK(meetings() - before == (length > 1008 ? 2 : 1));
  }
  CHECK(strategy().broadcast_object(rank() == 0 ? "first" : "another one").value() == "first");
  expect_in_step();
}

TEST_CASE("every rank gets replica 0's numbers, structs and nests of them") {
  CHECK(strategy().broadcast_object(std::size_t{7} + static_cast<std::size_t>(rank())).value() == 7);
  CHECK(strategy().broadcast_object(rank() == 0).value());
  const Plain plain{0.5 + rank(), rank() == 0 ? 'x' : 'y', {rank(), 2, 3}};
  const Plain first{0.5, 'x', {0, 2, 3}};
  CHECK(strategy().broadcast_object(plain).value() == first);

  const auto settings_of = [&](int rank) {
    return rank == 0 ? Settings{.path = "data", .classes = {"cat", "", "dog"}, .plain = first, .own = 5}
                     : Settings{.path = text_of(rank, 9), .plain = {}, .own = rank};
  };
  Settings named = settings_of(0);
  named.own = 0;
  CHECK(strategy().broadcast_object(settings_of(rank())).value() == named);

  const auto nest_of = [&](int rank) {
    using Map = std::map<std::string, std::pair<bool, std::vector<bool>>>;
    return std::tuple{rank == 0 ? Map{{"a", {true, {true, false}}}, {"b", {}}} : Map{},
                      std::array{std::string{"x"}, text_of(rank, 2)}, std::optional<int>{}};
  };
  CHECK(strategy().broadcast_object(nest_of(rank())).value() == nest_of(0));
}

TEST_CASE("what a struct begins with is replaced by replica 0's value") {
  const auto defaults_of = [](int rank) {
    return rank == 0 ? Defaults{.sizes = {7}, .rate = std::nullopt, .counts = {{"own", 5}}} : Defaults{};
  };
  CHECK(strategy().broadcast_object(defaults_of(rank())).value() == defaults_of(0));
}

TEST_CASE("a value can be made on replica 0 alone, also in replica code") {
  int calls = 0;
  const auto make = [&] {
    ++calls;
    return std::string{"from the chief"};
  };
  CHECK(strategy().broadcast_object(make).value() == "from the chief");
  CHECK(calls == (rank() == 0 ? 1 : 0));
  CHECK(strategy().broadcast_object([next = 4]() mutable { return ++next; }).value() == 5);
  const auto seen =
      strategy().run([&](ReplicaContext& context) { return context.strategy().broadcast_object(rank() + 3).value(); });
  CHECK(seen.local() == 3);
}

TEST_CASE("types and sizes of objects are the same on every rank, or a mismatch names them") {
  if (ranks() == 1) return;
  const auto odd = [&](const auto& value, const auto& other) {
    return mismatch_of([&] {
      const Here here = Here::current();
      odd_one() ? (void)strategy().broadcast_object(other, here) : (void)strategy().broadcast_object(value, here);
    });
  };
  struct Small {
    int numbers[2];
  };
  struct Large {
    int numbers[3];
  };
  const std::string sizes = odd(Small{}, Large{});
  CHECK_THAT(sizes, Catch::StartsWith("replica " + std::to_string(last()) + " ("));
  CHECK_THAT(sizes, Catch::Contains("Small of 8 bytes") && Catch::Contains("Large of 12 bytes"));
  CHECK_THAT(odd(std::string{}, 1), Catch::Contains("broadcast_object of text") && Catch::Contains("int of 4 bytes"));
  CHECK_FALSE(odd(std::vector{1}, std::vector{1.0}).empty());
  CHECK(odd(std::vector{1}, std::vector{1, 2}).empty());
  expect_in_step();
}

TEST_CASE("a failure on replica 0, or on a rank that does not come, reaches every rank") {
  const std::string made = message_of<std::exception>(
      [&] { (void)strategy().broadcast_object([]() -> std::string { throw std::runtime_error{"no such file"}; }); });
  if (rank() == 0) {
    CHECK(made == "no such file");
  } else {
    CHECK_THAT(made, Catch::StartsWith("replica 0 (") && Catch::EndsWith("failed: no such file"));
  }
  expect_in_step();
  if (ranks() == 1) return;
  const std::string elsewhere = message_of<std::exception>([&] {
    strategy().run([&](ReplicaContext& context) {
      if (odd_one()) throw std::runtime_error{"lost"};
      (void)context.strategy().broadcast_object(std::string{"text"});
    });
  });
  CHECK_THAT(elsewhere, Catch::EndsWith("lost"));
  expect_in_step();
}
