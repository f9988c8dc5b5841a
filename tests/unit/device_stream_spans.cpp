// Spans of a GPU's streams on their way to a trace: where they lie in the host's time, what they ask of the GPU, and
// that a GPU which refuses ends no job.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/device/stream_spans.hpp"
#include "core/trace/ring_file.hpp"
#include "support/forwarding_stream.hpp"
#include "support/job.hpp"
#include "support/quiet_log.hpp"

using namespace lockstep;
using namespace lockstep::test;
using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

namespace {

class GpuStream final : public ForwardingStream {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }
};

/// A GPU that passes each mark so long after it was put, by a clock that is far from the host's.
struct Gpu {
  nanoseconds delay{};
  std::size_t stuck_at = std::numeric_limits<std::size_t>::max();  ///< it passes no later mark, in order of puts
  DeviceMarks::Put answer = DeviceMarks::Put::done;
  bool tells = true;

  struct Passed {
    std::size_t order;
    nanoseconds at;
  };
  std::vector<Passed> marks;  ///< by number
  std::size_t puts = 0;
};

class ScriptedMarks final : public DeviceMarks {
 public:
  explicit ScriptedMarks(Gpu& gpu) : gpu_{gpu} {}

  Put put(std::size_t number, Stream& /*stream*/) noexcept override {
    if (gpu_.answer != Put::done) return gpu_.answer;
    if (number == gpu_.marks.size()) gpu_.marks.emplace_back();
    gpu_.marks.at(number) = {gpu_.puts++, trace::Time::clock::now().time_since_epoch() + gpu_.delay - hours{7}};
    return Put::done;
  }
  Distance distance(std::size_t from, std::size_t to) noexcept override {
    if (!gpu_.tells) return {Reached::failed, {}};
    const Gpu::Passed &a = gpu_.marks.at(from), &b = gpu_.marks.at(to);
    if (std::max(a.order, b.order) >= gpu_.stuck_at) return {Reached::not_yet, {}};
    return {Reached::both, b.at - a.at};
  }

 private:
  Gpu& gpu_;
};

/// A trace of a GPU.
struct Traced {
  TemporaryDirectory folder;
  Gpu gpu;
  std::optional<trace::Ring> ring{std::in_place,
                                  trace::Ring::Options{.file = folder.path() / "ring", .bytes = 1 << 16}};
  std::optional<StreamTrace> trace{std::in_place, std::make_unique<ScriptedMarks>(gpu)};
  GpuStream stream;

  void wait_for(Stream& on) {
    StreamTrace::Wait wait{on};
    wait.over();
  }
  trace::ReadRing read() const { return trace::read_ring(folder.path() / "ring"); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const trace::ReadSpan& span : read().spans)
      if (trace::is_of_stream(span.track)) names.push_back(span.name);
    return names;
  }
};

std::int64_t now() {
  return nanoseconds{trace::Time::clock::now().time_since_epoch()}.count();
}

}  // namespace

TEST_CASE("a stream's span lies where the host's clock says, within the error that the trace states") {
  Traced traced;
  // The host puts marks ahead of the GPU, but for the first.
  const std::int64_t begin = now();
  trace::Ring::set_step(7);
  std::optional<StreamSpan> span{std::in_place, traced.stream, trace::Kind::layer, "dense_0"};
  traced.gpu.delay = microseconds{300};
  span.reset();
  const nanoseconds length = traced.gpu.marks.at(1).at - traced.gpu.marks.at(0).at;
  trace::Ring::set_step(8);
  {
    StreamTrace::Wait wait{traced.stream};
    // The host looks a little later than the GPU comes to the end.
    while (now() < nanoseconds{traced.gpu.marks.at(2).at + hours{7} + microseconds{200}}.count()) {
    }
    wait.over();
  }
  const std::int64_t end = now();
  const trace::ReadRing read = traced.read();
  REQUIRE(read.spans.size() == 1);
  CHECK(read.spans[0].name == "dense_0");
  CHECK(read.spans[0].step == 7);
  CHECK(read.spans[0].track == trace::first_stream_track);
  CHECK(read.spans[0].length == length.count());
  CHECK(read.device_clock_error >= 100'000);
  CHECK(read.device_clock_error <= (end - begin) / 2);
  const std::int64_t true_begin = nanoseconds{traced.gpu.marks.at(0).at + hours{7}}.count();
  CHECK(std::abs(read.spans[0].begin - true_begin) <= read.device_clock_error);
}

TEST_CASE("layers follow one another from mark to mark, of host and GPU, and marks are used again") {
  Traced traced;
  for (int step = 0; step < 3; ++step) {
    {
      LayerSpans layers{traced.stream, "forward"};
      for (std::size_t layer = 0; layer < 3; ++layer) layers.next("dense", layer);
    }
    traced.wait_for(traced.stream);
  }
  // Of a step: both ends of the pass, each layer's begin, the last one's end, and the wait.
  CHECK(traced.gpu.puts == 3 * 7);
  CHECK(traced.gpu.marks.size() == 7);
  std::vector<trace::ReadSpan> device, host;
  for (const trace::ReadSpan& span : traced.read().spans)
    (trace::is_of_stream(span.track) ? device : host).push_back(span);
  REQUIRE(host.size() == 9);
  REQUIRE(device.size() == 12);
  CHECK(device[0].name == "forward");
  CHECK(device[0].kind == trace::Kind::part);
  for (const auto& [spans, first] : {std::pair{host, 0}, std::pair{device, 1}})
    for (const int layer : {0, 1}) {
      const auto index = static_cast<std::size_t>(first + layer);
      CHECK(spans[index].name == "dense_" + std::to_string(layer));
      CHECK(spans[index].begin + *spans[index].length == spans[index + 1].begin);
    }
}

TEST_CASE("what the GPU has not come to is written after a later wait, and another stream has a row of its own") {
  Traced traced;
  GpuStream sums;
  { const StreamSpan span{traced.stream, trace::Kind::layer, "optimizer"}; }
  {
    const BucketSpans bucket{3};
    const StreamSpan span{sums, trace::Kind::sum, BucketSpans::name_of("all_reduce")};
  }
  CHECK(BucketSpans::name_of("broadcast") == "ncclKernel_broadcast");
  traced.gpu.stuck_at = 2;
  traced.wait_for(traced.stream);
  CHECK(traced.names().empty());  // not even the mark that was waited for
  traced.gpu.stuck_at = 5;
  traced.wait_for(traced.stream);
  traced.gpu.stuck_at = 100;
  traced.wait_for(traced.stream);
  CHECK(traced.names() == std::vector<std::string>{"optimizer", "ncclKernel_all_reduce bucket_3"});
  CHECK(traced.read().spans.back().track == trace::first_stream_track + 1);
}

TEST_CASE("more spans than there are marks for are left out until the host waits for the GPU") {
  Traced traced;
  for (int i = 0; i < 4096; ++i) const StreamSpan span{traced.stream, trace::Kind::layer, "early"};
  { const StreamSpan span{traced.stream, trace::Kind::layer, "one too many"}; }
  CHECK(traced.gpu.marks.size() == 8192);
  traced.wait_for(traced.stream);
  { const StreamSpan span{traced.stream, trace::Kind::layer, "late"}; }
  traced.wait_for(traced.stream);
  CHECK(traced.gpu.marks.size() == 8193);
  const std::vector<std::string> names = traced.names();
  CHECK(std::ranges::count(names, "one too many") == 0);
  REQUIRE_FALSE(names.empty());
  CHECK(names.back() == "late");
}

TEST_CASE("a GPU that refuses to be asked ends no job, and is not asked again") {
  Traced traced;
  const QuietLog quiet;
  const auto step = [&] {
    { const StreamSpan span{traced.stream, trace::Kind::layer, "dense_0"}; }
    traced.wait_for(traced.stream);
  };
  SECTION("a mark") {
    traced.gpu.answer = DeviceMarks::Put::failed;
  }
  SECTION("a time") {
    traced.gpu.tells = false;
  }
  step();
  traced.gpu.answer = DeviceMarks::Put::done;
  traced.gpu.tells = true;
  const std::size_t puts = traced.gpu.puts;
  step();
  CHECK(traced.gpu.puts == puts);
  CHECK(traced.names().empty());
}

TEST_CASE("a stream that records a graph gets no marks, and then again some") {
  Traced traced;
  traced.gpu.answer = DeviceMarks::Put::refused;
  { const StreamSpan span{traced.stream, trace::Kind::layer, "captured"}; }
  std::optional<StreamSpan> begun{std::in_place, traced.stream, trace::Kind::layer, "half captured"};
  traced.gpu.answer = DeviceMarks::Put::done;
  begun.reset();
  { const StreamSpan span{traced.stream, trace::Kind::layer, "seen"}; }
  traced.wait_for(traced.stream);
  CHECK(traced.names() == std::vector<std::string>{"seen"});
}

TEST_CASE("without a trace of streams, and on the host, a stream's span is nothing") {
  Traced traced;
  { const StreamSpan span{Stream::host(), trace::Kind::layer, "on the host"}; }
  std::optional<StreamSpan> open{std::in_place, traced.stream, trace::Kind::layer, "never ends"};
  traced.trace.reset();
  { const StreamSpan span{traced.stream, trace::Kind::layer, "too late"}; }
  traced.trace.emplace(std::make_unique<ScriptedMarks>(traced.gpu));
  open.reset();  // of a trace that has ended
  traced.wait_for(traced.stream);
  CHECK(traced.names().empty());
}
