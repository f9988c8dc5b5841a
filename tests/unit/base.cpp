// The base layer: errors, element types, shapes, the log, digests, random numbers.
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/core/base/philox.hpp>
#include <lockstep/core/base/shape.hpp>

#include "core/base/countdown.hpp"
#include "core/base/counted_time.hpp"
#include "core/base/deadline.hpp"
#include "core/base/digest.hpp"
#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"
#include "core/base/excerpt.hpp"
#include "core/base/exit_code.hpp"
#include "core/base/log_settings.hpp"
#include "core/base/philox4x32.hpp"
#include "core/base/printable.hpp"
#include "core/base/start_thread.hpp"

using namespace lockstep;

TEST_CASE("a countdown calls once its time has passed, of which a pause of the process is none") {
  int late = 0;
  Countdown countdown;
  const auto passes = [&](double seconds) {
    countdown.pass(Countdown::Seconds{seconds});
    return late;
  };
  const auto set = [&] { countdown.set(Countdown::Seconds{0.25}, [&] { ++late; }); };
  set();
  CHECK(passes(3600) == 0);
  CHECK(passes(0.1) == 0);
  CHECK(passes(0.1) == 1);
  CHECK_FALSE(countdown.is_set());
  CHECK(passes(1) == 1);
  set();
  countdown.clear();
  for (int looks = 0; looks < 3; ++looks) CHECK(passes(1) == 1);
}

TEST_CASE("a deadline without end does not pass") {
  for (const double seconds : {1e10, std::numeric_limits<double>::infinity()}) {
    std::atomic<bool> late{false};
    Deadline deadline{"for a test"};
    deadline.set(std::chrono::duration<double>{seconds}, [&] { late = true; });
    // A time that has overflowed passes as soon as the thread runs.
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds{20};
    while (!late && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    CHECK_FALSE(late);
  }
}

TEST_CASE("a deadline passes once it is set, unless it is cleared, and can be set again") {
  Deadline deadline{"for a test"};
  std::atomic<int> late{0};
  const auto set = [&](double seconds) { deadline.set(std::chrono::duration<double>{seconds}, [&] { ++late; }); };
  set(1000);
  deadline.clear();
  for (int times = 1; times <= 2; ++times) {
    set(0.001);
    while (late < times) std::this_thread::yield();
  }
  set(1000);
  CHECK(late == 2);
}

TEST_CASE("a loop counts the time between its looks, up to a limit, and none that goes back") {
  using Seconds = CountedTime::Seconds;
  CountedTime time{Seconds{100}, Seconds{0.5}};
  CHECK(time.look(Seconds{100.25}) == Seconds{0.25});
  CHECK(time.look(Seconds{3700}) == Seconds{0.75});  // it was stopped for an hour
  CHECK(time.look(Seconds{3600}) == Seconds{0.75});
  CHECK(time.look(Seconds{3600.5}) == Seconds{1.25});
  time.begin_again();
  CHECK(time.look(Seconds{3601}) == Seconds{0.5});
}

TEST_CASE("a thread that cannot be started is named with the limits that the process has") {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("lockstep-limits-{}", ::getpid());
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream{folder / name} << text;
  };
  const std::string own = limits_of_threads(folder);
  CHECK_THAT(own, Catch::StartsWith("RLIMIT_NPROC is ") && !Catch::Contains("pids.max"));
  write("proc/self/cgroup", "0::/job/ranks\n");
  write("sys/fs/cgroup/job/pids.max", "50\n");
  write("sys/fs/cgroup/job/ranks/pids.max", "max\n");
  CHECK(limits_of_threads(folder) == own + ", pids.max of " + (folder / "sys/fs/cgroup/job").string() + " is 50");
  write("proc/self/cgroup", "4:cpu:/none\n9:pids:/ranks\n");
  write("sys/fs/cgroup/pids/ranks/pids.max", "7\n");
  CHECK(limits_of_threads(folder) == own + ", pids.max of " + (folder / "sys/fs/cgroup/pids/ranks").string() + " is 7");
  std::filesystem::remove_all(folder);

  start_thread("for a test", [] {}).join();
}

TEST_CASE("every error stands for its exit code") {
  CHECK(exit_code_of(ConfigError{""}) == Error::ExitCode::user_input);
  CHECK(exit_code_of(MismatchError{""}) == Error::ExitCode::mismatch);
  CHECK(exit_code_of(PeerError{1, ""}) == Error::ExitCode::peer_failed);
  CHECK(exit_code_of(StallError{""}) == Error::ExitCode::stall);
  CHECK(exit_code_of(DriftError{"", {}}) == Error::ExitCode::replicas_differ);
  CHECK(exit_code_of(CheckpointError{""}) == Error::ExitCode::checkpoint);
  CHECK(exit_code_of(DivergenceError{""}) == Error::ExitCode::diverged);
  CHECK(exit_code_of(StoppedError{""}) == Error::ExitCode::stopped);
  CHECK(exit_code_of(ContextError{""}) == Error::ExitCode::failure);
  CHECK(exit_code_of(std::runtime_error{""}) == Error::ExitCode::failure);
}

TEST_CASE("a peer's bad input is the user's input, any other failure of a peer is a failed peer") {
  CHECK(exit_code_of(PeerError{1, "", Error::ExitCode::user_input}) == Error::ExitCode::user_input);
  CHECK(exit_code_of(PeerError{1, "", Error::ExitCode::failure}) == Error::ExitCode::peer_failed);
  CHECK(PeerError{3, "x"}.rank() == 3);
}

TEST_CASE("element counts multiply, and refuse what cannot be counted") {
  CHECK(element_count({}) == 1);
  CHECK(element_count({3, 4}) == 12);
  CHECK(element_count({3, 0, 4}) == 0);
  CHECK_THROWS_AS(element_count({2, -1}), InvalidArgument);
  CHECK_THROWS_AS(element_count({std::int64_t{1} << 32, std::int64_t{1} << 32}), InvalidArgument);
  CHECK(describe(Shape{512, 784}) == "[512, 784]");
  CHECK(describe(Shape{}) == "[]");
}

TEST_CASE("a shape holds as many extents as a tensor can have, in order") {
  Shape shape{2, 4};
  shape.insert(shape.begin() + 1, 3);
  shape.push_back(5);
  CHECK(shape == Shape{2, 3, 4, 5});
  CHECK(shape.front() * 10 + shape.back() == 25);
  shape.erase(shape.begin());
  shape.pop_back();
  CHECK(shape == Shape(std::vector<std::int64_t>{3, 4}));
  CHECK(shape != Shape{3, 4, 5});
  CHECK(Shape(shape.begin() + 1, shape.end()) == Shape{4});

  while (shape.size() < Shape::most_dimensions) shape.push_back(1);
  CHECK_THROWS_WITH(shape.push_back(1), "a shape of more than 8 dimensions; expected at most 8");
  CHECK_THROWS_AS(shape.insert(shape.begin(), 1), InvalidArgument);
  CHECK(shape == Shape{3, 4, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("types know their size and name") {
  CHECK(size_of(DType::bf16) == 2);
  CHECK(size_of(detail::dtype_of<double>) == 8);
  CHECK(name_of(detail::dtype_of<std::uint8_t>) == "u8");
  CHECK(is_floating_point(DType::bf16));
  CHECK_FALSE(is_floating_point(DType::i64));
}

TEST_CASE("Philox gives the known answers of its authors' test vectors") {
  using Block = std::array<std::uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a stream depends on seed, purpose, step and index") {
  std::set<std::uint64_t> seen;
  for (const std::uint64_t seed : {0, 1})
    for (const auto purpose : {RandomStream::Purpose::initial_value, RandomStream::Purpose::sample_order})
      for (const std::uint64_t step : {0, 1})
        for (const std::uint64_t index : {0, 1}) seen.insert(RandomStream{seed, purpose, step}.bits(index));
  CHECK(seen.size() == 16);
  CHECK(RandomStream{7, RandomStream::Purpose::dropout, 3}.bits(5) ==
        RandomStream{7, RandomStream::Purpose::dropout, 3}.bits(5));
}

TEST_CASE("the words of a stream are those of its blocks, wherever one begins to read") {
  const std::uint64_t seed = 0x123456789abcdef0, step = 77;
  const RandomStream stream{seed, RandomStream::Purpose::dropout, step};
  const auto word = [&](std::uint64_t index) {
    const std::uint64_t block = index / 4;
    return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), step, 3u << 24},
                      {0x9abcdef0, 0x12345678})[index % 4];
  };
  for (const std::uint64_t first : {0ull, 1ull, 31ull, 32ull, 45ull, (1ull << 34) - 3, (1ull << 48) + 7})
    for (const std::size_t count : {0, 1, 4, 33, 100}) {
      std::vector<std::uint32_t> words(count + 1, 42);
      stream.words(first, std::span{words}.first(count));
      for (std::size_t i = 0; i < count; ++i) CHECK(words[i] == word(first + i));
      CHECK(words[count] == 42);
    }
  CHECK(stream.bits(5) == (std::uint64_t{word(21)} << 32 | word(20)));
}

TEST_CASE("uniform numbers are in [0, 1), exact in float and centred") {
  const RandomStream stream{1, RandomStream::Purpose::initial_value, 0};
  double sum = 0;
  for (std::uint64_t index = 0; index < 10'000; ++index) {
    const double x = stream.uniform(index);
    REQUIRE((x >= 0 && x < 1));
    REQUIRE(static_cast<double>(static_cast<float>(x)) == x);
    sum += x;
  }
  CHECK(std::abs(sum / 10'000 - 0.5) < 4 * 0.2887 / 100);  // four standard errors
}

TEST_CASE("bounded numbers stay below the bound and reach every value") {
  const RandomStream stream{2, RandomStream::Purpose::sample_order, 0};
  std::set<std::uint64_t> seen;
  for (std::uint64_t index = 0; index < 200; ++index) seen.insert(stream.below(7, index));
  CHECK(seen == std::set<std::uint64_t>{0, 1, 2, 3, 4, 5, 6});
  CHECK(stream.below(1, 9) == 0);
  CHECK_THROWS_AS(stream.below(0, 9), InvalidArgument);
}

TEST_CASE("a digest is xxHash64 of the bytes, however they came") {
  CHECK(to_hex(digest_of("")) == "ef46db3751d8e999");  // the published value for no input and seed 0
  CHECK(Digest{}.update("lock").update("").update("step").value() == digest_of("lockstep"));
  CHECK(digest_of("lockstep") != digest_of("lockstop"));
}

TEST_CASE("a wide digest is XXH3 of the bytes, however they came") {
  std::vector<std::byte> bytes(10000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  const std::span<const std::byte> all{bytes};
  CHECK(to_hex(WideDigest{}.value()) == "2d06800538d394c2");              // the published value for no input and seed 0
  CHECK(to_hex(WideDigest{}.update(all).value()) == "09ea754d7983b623");  // by the library's scalar way
  CHECK(WideDigest{}.update(all.first(1)).update(all.subspan(1, 4999)).update(all.subspan(5000)).value() ==
        WideDigest{}.update(all).value());
}

TEST_CASE("an excerpt has at most 200 characters, on one line, and ends or begins with dots where it is cut") {
  const std::string euros = [] {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "€";
    return text;
  }();
  CHECK(excerpt(euros) == euros);
  CHECK(excerpt(euros + "x") == euros + "…");
  CHECK(excerpt("a\tb\nz\x1b\xe2\x82") == "a\\x09b\\x0az\\x1b\\xe2\\x82");
  CHECK(excerpt(std::string(51, '\n')) == excerpt(std::string(50, '\n')) + "…");  // each is four characters
  CHECK(excerpt("").empty());

  CHECK(excerpt_from_difference("one", "two") == "one");
  const std::string same(300, '.');
  CHECK(excerpt_from_difference(same + "one", same + "two") == "…" + std::string(40, '.') + "one");
  CHECK(excerpt_from_difference(same, same + "x") == "…" + std::string(40, '.'));
  CHECK(excerpt_from_difference(euros + "one", euros + "two").starts_with("…€€"));
}

TEST_CASE("log levels are known by name") {
  CHECK(log::parse_level("warning") == log::Level::warning);
  CHECK_THROWS_WITH(log::parse_level("loud"), Catch::Contains("'loud'") && Catch::Contains("trace, debug, info"));
}

TEST_CASE("text from anywhere is shown as UTF-8, and as \\x1b where it is none or a terminal obeys it") {
  const std::string good = "a\tb\nz\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80";
  CHECK(printable(good) == good);
  CHECK(printable("\x1b[2J\r\x7f") == "\\x1b[2J\\x0d\\x7f");
  // A byte of the middle, a sequence that is cut, one that is too long, half of a pair, one beyond Unicode, and U+009B.
  CHECK(printable("\x80z") == "\\x80z");
  CHECK(printable("\xe2\x82z") == "\\xe2\\x82z");
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");
  CHECK(printable("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");
  CHECK(printable(std::string_view{"\xc3\xa4", 1}) == "\\xc3");  // what follows the text is none of it
}
