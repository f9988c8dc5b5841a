// The spans of a process on their way to a file and to a picture.
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/trace/span.hpp>

#include "core/trace/chrome.hpp"
#include "core/trace/ring.hpp"
#include "core/trace/ring_file.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"

namespace lockstep::test::trace_cases {

using namespace lockstep::trace;
using lockstep::trace::Time;

using Catch::Contains;
using lockstep::test::ChildProcess;
using lockstep::test::TemporaryDirectory;

namespace {

std::vector<std::string> names_of(const ReadRing& ring) {
  std::vector<std::string> names;
  for (const ReadSpan& span : ring.spans) names.push_back(span.name);
  return names;
}

nlohmann::json picture_of(const std::vector<ReadRing>& rings, const Steps& steps = {}) {
  std::string text;
  write_chrome(rings, steps, [&](std::string_view piece) { text += piece; });
  return nlohmann::json::parse(text);
}

}  // namespace

TEST_CASE("spans of all threads are in the file, with their step, and nest like blocks") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "rank-1.ring";
  {
    Ring ring{
        {.file = file, .rank = 1, .ranks = 4, .task = "worker:1", .host = "b", .device = "cpu", .bytes = 1 << 16}};
    Ring::set_step(7);
    const Within outer{Kind::part, "forward"};
    { const Span inner{"mine"}; }
    std::thread{[] { const Span span{"theirs"}; }}.join();
  }
  const ReadRing read = read_ring(file);
  CHECK(read.rank == 1);
  CHECK(read.ranks == 4);
  CHECK(read.process == ::getpid());
  CHECK(read.task == "worker:1");
  CHECK(read.lost == 0);
  REQUIRE(names_of(read) == std::vector<std::string>{"forward", "mine", "theirs"});
  const auto& [outer, inner, theirs] = std::tie(read.spans[0], read.spans[1], read.spans[2]);
  CHECK(outer.kind == Kind::part);
  CHECK(inner.kind == Kind::program);
  CHECK(inner.track == outer.track);
  CHECK(theirs.track != outer.track);
  for (const Track track : {outer.track, theirs.track}) CHECK_FALSE(read.threads.at(track).empty());
  for (const ReadSpan& span : read.spans) {
    CHECK(span.step == 7);
    REQUIRE(span.length);
    CHECK(span.begin >= outer.begin);
    CHECK(span.begin + *span.length <= outer.begin + *outer.length);
  }
}

TEST_CASE("a ring without a name has no file, not even of a process that is killed") {
  const TemporaryDirectory folder;
  const Ring::Options unnamed{.file = folder.path(), .name = Ring::Options::Name::none, .bytes = 1 << 16};
  ChildProcess child{[&] {
    const Ring ring{unnamed};
    { const Span span{"mine"}; }
    return ::kill(::getpid(), SIGKILL);
  }};
  CHECK(child.wait() == -SIGKILL);
  CHECK(std::filesystem::is_empty(folder.path()));
  Ring::Options elsewhere = unnamed;
  elsewhere.file = folder.path() / "none";
  CHECK_THROWS_WITH(Ring{elsewhere}, Contains("none: no file can be made there (No such file or directory)"));
}

TEST_CASE("the newest spans take the place of the oldest, and one that was written over ends nothing") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "ring";
  {
    Ring ring{{.file = file, .bytes = header_bytes + 4 * sizeof(Record)}};
    const Within lost{Kind::program, "lost"};
    const Within open{Kind::program, "also lost"};
    for (const char* name : {"a", "b", "c", "d", "e"}) const Within span{Kind::program, name};
  }
  const ReadRing read = read_ring(file);
  CHECK(read.lost == 3);
  CHECK(names_of(read) == std::vector<std::string>{"b", "c", "d", "e"});
}

TEST_CASE("of a process that was killed, the file has what it did, and what it was doing") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "ring";
  ChildProcess child{[&] {
    Ring ring{{.file = file, .bytes = 1 << 16}};
    { const Within done{Kind::part, "data"}; }
    const Within doing{Kind::part, "forward"};
    return std::raise(SIGKILL);
  }};
  REQUIRE(child.wait() == -SIGKILL);
  const ReadRing read = read_ring(file);
  REQUIRE(names_of(read) == std::vector<std::string>{"data", "forward"});
  CHECK(read.spans[0].length);
  CHECK_FALSE(read.spans[1].length);
  const auto events = picture_of({read}).at("traceEvents");
  CHECK(events.back().at("ph") == "B");
}

namespace {

/// How many spans have been written to a ring's file; 0 while it is none.
std::uint64_t written_to(const std::filesystem::path& file) {
  try {
    const ReadRing read = read_ring(file);
    return read.lost + read.spans.size();
  } catch (const ConfigError&) {
    return 0;
  }
}

}  // namespace

TEST_CASE("a process may be killed at any moment") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "ring";
  std::size_t open = 0, lost = 0;
  for (std::uint64_t killed = 0; killed < 40; ++killed) {
    std::filesystem::remove(file);
    ChildProcess child{[&]() -> int {
      // So small that the newest spans soon take the place of the oldest.
      Ring ring{{.file = file, .bytes = header_bytes + 32 * sizeof(Record)}};
      for (std::uint64_t step = 1;; ++step) {
        Ring::set_step(step);
        const Within outer{Kind::part, "forward"};
        for (const std::size_t layer : {0, 1, 2}) const Within inner{Kind::layer, "dense", layer};
      }
    }};
    // From before the file is there to thousands of spans later.
    while (written_to(file) < 3 * killed * killed) REQUIRE(::waitpid(child.id(), nullptr, WNOHANG) == 0);
    child.signal(SIGKILL);
    REQUIRE(child.wait() == -SIGKILL);
    try {
      const ReadRing read = read_ring(file);
      lost += read.lost;
      for (const ReadSpan& span : read.spans) {
        CAPTURE(killed, span.name, span.step);
        CHECK((span.kind == Kind::part ? span.name == "forward" : span.name.starts_with("dense_")));
        CHECK(span.begin >= read.spans.front().begin);
        CHECK(span.length.value_or(0) >= 0);
        open += span.length ? 0 : 1;
      }
      CHECK_NOTHROW(picture_of({read}));
    } catch (const ConfigError& error) {
      CHECK_THAT(error.what(), Contains("expected a trace"));  // it had only begun to make the file
    }
  }
  CHECK(open > 0);
  CHECK(lost > 0);
}

TEST_CASE("a trace of 100,000 steps is as large as one of a single step, and its last steps are whole") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "ring";
  constexpr std::uint32_t steps = 100'000;
  std::optional<Ring> ring{std::in_place, Ring::Options{.file = file}};
  CHECK(std::filesystem::file_size(file) == 32 << 20);
  for (std::uint32_t step = 1; step <= steps; ++step) {
    Ring::set_step(step);
    const Within span{Kind::step, "step"};
    for (const std::size_t layer : {0, 1, 2, 3, 4, 5}) const Within inner{Kind::layer, "dense", layer};
  }
  ring.reset();
  CHECK(std::filesystem::file_size(file) == 32 << 20);
  const ReadRing read = read_ring(file);
  CHECK(read.spans.size() + read.lost == 7 * steps);
  CHECK(read.spans.size() > 500'000);
  const Steps last = last_steps({&read, 1}, 20);
  CHECK(last.first == steps - 19);
  std::size_t bytes = 0;
  write_chrome({&read, 1}, last, [&](std::string_view piece) { bytes += piece.size(); });
  CHECK(bytes < 20 * 7 * 200);
}

TEST_CASE("without a trace, a span is nothing; nor is one that begins before the trace, or ends after it") {
  const TemporaryDirectory folder;
  std::optional<Span> before{"before"};
  std::optional<Ring> ring{std::in_place, Ring::Options{.file = folder.path() / "ring", .bytes = 1 << 16}};
  before.reset();
  std::optional<Span> after{"after"};
  ring.reset();
  after.reset();
  const ReadRing read = read_ring(folder.path() / "ring");
  REQUIRE(names_of(read) == std::vector<std::string>{"after"});
  CHECK_FALSE(read.spans[0].length);
}

TEST_CASE("the times of a rank are those of the first rank's clock") {
  const TemporaryDirectory folder;
  Ring ring{{.file = folder.path() / "ring", .bytes = 1 << 16}};
  { const Span span{"a"}; }
  const std::int64_t own = read_ring(folder.path() / "ring").spans.at(0).begin;
  ring.set_clock(std::chrono::nanoseconds{-5000}, std::chrono::nanoseconds{700});
  const ReadRing read = read_ring(folder.path() / "ring");
  CHECK(read.spans.at(0).begin == own - 5000);
  CHECK(read.clock_error == 700);
}

TEST_CASE("one look at the clock ends a span and begins the next, and a span may be added that has ended") {
  const TemporaryDirectory folder;
  Ring ring{{.file = folder.path() / "ring", .bytes = 1 << 16}};
  const Time now = std::chrono::steady_clock::now();
  Ring::Open span = Ring::next({}, Kind::part, parts_track, "data", now);
  span = Ring::next(span, Kind::part, parts_track, "forward", now + std::chrono::nanoseconds{500});
  Ring::set_step(3);
  Ring::add({.kind = Kind::layer,
             .track = first_stream_track,
             .step = 2,
             .begin = now - std::chrono::nanoseconds{70},
             .length = std::chrono::nanoseconds{60},
             .name = "dense_0"});
  {
    const Ring::Off off;
    { const Span none{"not seen"}; }
    Ring::end(span);
  }
  for (const int error : {900, 800}) Ring::raise_device_error(std::chrono::nanoseconds{error});
  CHECK(ring.written() == 3);
  const ReadRing read = read_ring(folder.path() / "ring");
  REQUIRE(names_of(read) == std::vector<std::string>{"dense_0", "data", "forward"});
  CHECK(read.spans[0].step == 2);
  CHECK(read.spans[0].length == 60);
  CHECK(read.spans[1].length == 500);
  CHECK(read.spans[2].begin == read.spans[1].begin + 500);
  CHECK_FALSE(read.spans[2].length);
  CHECK(read.device_clock_error == 900);
}

TEST_CASE("threads of a second ring have its tracks, and a process has one ring at a time") {
  const TemporaryDirectory folder;
  for (const char* name : {"first", "second"}) {
    const Ring ring{{.file = folder.path() / name, .bytes = 1 << 16}};
    CHECK_THROWS_WITH(Ring({.file = folder.path() / "third", .bytes = 1 << 16}), Contains("keeps a trace already"));
    // The other way round than before.
    if (name == std::string{"second"}) std::thread{[] { const Span span{"theirs"}; }}.join();
    { const Span span{"mine"}; }
    if (name == std::string{"first"}) std::thread{[] { const Span span{"theirs"}; }}.join();
    const ReadRing read = read_ring(folder.path() / name);
    REQUIRE(read.spans.size() == 2);
    CHECK(read.spans[0].track == 0);
    CHECK(read.spans[1].track == 1);
  }
}

TEST_CASE("a picture of all ranks has their last steps") {
  std::vector<ReadRing> rings;
  for (const int rank : {0, 1}) {
    ReadRing ring{.rank = rank,
                  .ranks = 2,
                  .process = 1,
                  .task = "worker",
                  .host = "\"a\"",
                  .device = "cuda:0",
                  .clock_error = 700 * rank,
                  .device_clock_error = 2500,
                  .threads = {},
                  .lost = 0,
                  .spans = {}};
    for (std::uint32_t step = 1; step <= 3; ++step) {
      const std::int64_t begin = 100'000 * step;
      ring.spans.push_back({begin, 20'500, step, 0, Kind::step, "step"});
      ring.spans.push_back({begin + 1000, 9000, step, first_stream_track, Kind::part, "forward"});
      ring.spans.push_back({begin + 2000, 4000, step, first_stream_track, Kind::layer, "dense_0"});
      ring.spans.push_back(
          {begin + 3000, 5000, step, first_stream_track + 1, Kind::sum, "ncclKernel_all_reduce bucket_0"});
      ring.spans.push_back({begin, 0, step, 0, Kind::run, "the evaluation \"1\"\n"});
    }
    rings.push_back(std::move(ring));
  }
  CHECK(last_steps(rings, 2).first == 2);
  CHECK(last_steps(rings, 9).first == 0);
  rings[1].lost = 1;  // and so a part of step 1
  CHECK(last_steps(rings, 9).first == 2);

  const auto picture = picture_of(rings, last_steps(rings, 2));
  CHECK(picture.at("lockstep").at("clock_error_us") == nlohmann::json{0.0, 0.7});
  CHECK_FALSE(picture.contains("distributedInfo"));
  std::array<std::vector<double>, 2> begins;
  for (const auto& event : picture.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("cat") == "user_annotation") {
      CHECK(event.at("name") == "ProfilerStep#" + std::to_string(event.at("args").at("step").get<int>()));
      CHECK(event.at("dur") == 20.5);
      begins[event.at("pid").get<std::size_t>()].push_back(event.at("ts"));
    }
  for (const auto& each : begins) CHECK(each == std::vector<double>{200, 300});
  CHECK(picture.at("lockstep").at("device_clock_error_us") == nlohmann::json{2.5, 2.5});
  CHECK(picture_of({rings[1]}).at("distributedInfo") ==
        nlohmann::json{{"backend", "nccl"}, {"rank", 1}, {"world_size", 2}});
}

TEST_CASE("Holistic Trace Analysis finds in a picture what it asks for") {
  // As of its version 0.5.0: the events of a GPU have a stream, and a correlation with one of the host, whose step is
  // theirs too; sums over ranks are kernels whose names begin with "ncclKernel"; every span has a category and a
  // length. The rank is found with the regular expression "rank":\\s+(\\d+).
  ReadRing ring{.rank = 0,
                .ranks = 1,
                .process = 1,
                .task = "worker",
                .host = "a",
                .device = "cuda:0",
                .clock_error = 0,
                .device_clock_error = 0,
                .threads = {},
                .lost = 0,
                .spans = {}};
  ring.spans.push_back({1000, 9000, 4, 0, Kind::step, "step"});
  ring.spans.push_back({2000, 6000, 4, first_stream_track, Kind::part, "forward"});
  ring.spans.push_back({2000, 4000, 4, first_stream_track, Kind::layer, "dense_0"});
  ring.spans.push_back({3000, 5000, 4, first_stream_track + 1, Kind::sum, "ncclKernel_all_reduce bucket_0"});
  std::string text;
  write_chrome({&ring, 1}, {}, [&](std::string_view piece) { text += piece; });
  CHECK_THAT(text, Contains("\"rank\": 0,"));
  nlohmann::json spans, threads;
  const auto picture = nlohmann::json::parse(text);
  CHECK(picture.at("schemaVersion").is_number());
  for (const auto& event : picture.at("traceEvents")) {
    if (event.at("ph") == "X") spans.push_back(event);
    if (event.at("name") == "thread_name") threads.push_back(event.at("args").at("name"));
  }
  REQUIRE(spans.size() == 4);
  for (const auto& span : spans)
    for (const char* const key : {"cat", "name", "pid", "tid", "ts", "dur", "args"}) CHECK(span.contains(key));
  CHECK(spans[0].at("name") == "ProfilerStep#4");
  CHECK(spans[0].at("args").at("correlation") == (1 << 30) + 4);
  CHECK_FALSE(spans[0].at("args").contains("stream"));
  CHECK(spans[1].at("cat") == "gpu_user_annotation");
  CHECK_FALSE(spans[1].at("args").contains("stream"));  // or what is inside would count twice
  for (const int stream : {1, 2}) {
    const auto& span = spans[static_cast<std::size_t>(stream + 1)];
    CHECK(span.at("cat") == "kernel");
    CHECK(span.at("args").at("stream") == stream);
    CHECK(span.at("args").at("correlation") == (1 << 30) + 4);
  }
  CHECK(threads == nlohmann::json{"main thread", "cuda:0, stream 1", "cuda:0, stream 2"});
}

TEST_CASE("a file that is none of a ring, or cannot be made, is named") {
  const TemporaryDirectory folder;
  CHECK_THROWS_WITH(read_ring(folder.path() / "missing"), Contains("missing: No such file or directory; expected"));
  CHECK_THROWS_WITH(read_ring(folder.write("text", "a text")), Contains("text: no file of a trace"));
  CHECK_THROWS_WITH(read_ring(folder.write("zeros", std::string(9000, '\0'))), Contains("no file of a trace"));
  CHECK_THROWS_AS(Ring({.file = folder.path() / "missing" / "ring"}), CheckpointError);
  CHECK_FALSE(Ring::is_on());
}

namespace {

int refuses_room = 0;  ///< the error of a file system that cannot be asked for room

}  // namespace

extern "C" int posix_fallocate(int descriptor, off_t first, off_t bytes) {
  if (refuses_room != 0) return refuses_room;
  return ::fallocate(descriptor, 0, first, bytes) == 0 ? 0 : errno;
}

TEST_CASE("a ring takes its room by writing where a file system cannot be asked for it") {
  for (const int error : {ENOSYS, EOPNOTSUPP, EINVAL, EPERM}) {
    const test::TemporaryDirectory folder;
    refuses_room = error;
    const Ring ring{{.file = folder.path() / "ring", .bytes = 300'000}};
    refuses_room = 0;
    struct stat status = {};
    REQUIRE(::stat((folder.path() / "ring").c_str(), &status) == 0);
    CHECK(status.st_blocks * 512 >= status.st_size);
    CHECK(status.st_size >= 290'000);
  }
}

TEST_CASE("a ring that the disk has no room for is a file that cannot be written, and leaves none") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "ring";
  rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  const auto told = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string what;
  try {
    const Ring ring{{.file = file, .bytes = 1 << 16}};
  } catch (const CheckpointError& error) {
    what = error.what();
  } catch (const Error&) {
  }
  (void)::setrlimit(RLIMIT_FSIZE, &before);
  (void)std::signal(SIGXFSZ, told);
  CHECK_THAT(what, Contains("ring: there is no room for it"));
  CHECK_FALSE(std::filesystem::exists(file));
}

}  // namespace lockstep::test::trace_cases
