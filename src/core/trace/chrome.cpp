#include "core/trace/chrome.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep::trace {
namespace {

/// `text` as JSON, with its quotation marks.
std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// As PyTorch's traces call them, where they have a word for it.
std::string_view category_of(Kind kind) {
  switch (kind) {
    case Kind::step:
    case Kind::program: return "user_annotation";
    case Kind::run: return "run";
    case Kind::part: return "part";
    case Kind::layer: return "layer";
    case Kind::wait: return "wait";
    case Kind::sum: return "sum";
    case Kind::checkpoint: return "checkpoint";
  }
  return "";
}

/// Holistic Trace Analysis adds up kernels; a part of a step has some inside.
std::string_view gpu_category_of(Kind kind) {
  return kind == Kind::part ? "gpu_user_annotation" : "kernel";
}

/// Between a step and the kernels in it. So large because Holistic Trace Analysis keeps the indices of events in a type
/// that it chooses by these.
std::uint64_t correlation_of(std::uint32_t step) {
  return (std::uint64_t{1} << 30) + step;
}

/// As in the arguments of PyTorch's kernels, where 0 is the default stream.
int stream_number(Track track) {
  return track - first_stream_track + 1;
}

std::string track_name(const ReadRing& ring, Track track) {
  if (is_of_stream(track)) return fmt::format("{}, stream {}", ring.device, stream_number(track));
  if (track == parts_track) return "parts";
  if (track == writer_track) return "checkpoint writer";
  if (track == 0) return "main thread";
  const bool has_name = track < ring.threads.size() && ring.threads[track] != ring.threads[0];
  return fmt::format("{} {}", has_name ? ring.threads[track] : "thread", track);
}

/// Pieces of a reasonable size.
class Pieces {
 public:
  explicit Pieces(const std::function<void(std::string_view)>& write) : write_{write} {}
  Pieces(const Pieces&) = delete;
  ~Pieces() = default;

  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Values>(values)...);
    if (buffer_.size() > piece) flush();
  }
  void flush() {
    write_({buffer_.data(), buffer_.size()});
    buffer_.clear();
  }

 private:
  static constexpr std::size_t piece = 1 << 16;
  const std::function<void(std::string_view)>& write_;
  fmt::memory_buffer buffer_;
};

void name_tracks(Pieces& out, const ReadRing& ring, const std::set<Track>& tracks) {
  const std::string name = json_text(fmt::format("replica {} ({}, host {})", ring.rank, ring.task, ring.host));
  out.add(
      "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"tid\":0,\"args\":{{\"name\":{1}}}}},\n"
      "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{0},\"tid\":0,\"args\":{{\"sort_index\":{0}}}}}",
      ring.rank, name);
  for (const Track track : tracks)
    out.add(",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}", ring.rank,
            track, json_text(track_name(ring, track)));
}

/// In microseconds, by rank.
void add_errors(Pieces& out, std::span<const ReadRing> rings, std::string_view name, std::int64_t ReadRing::*error) {
  out.add("\"{}\":[", name);
  for (std::size_t index = 0; index < rings.size(); ++index)
    out.add("{}{:.3f}", index == 0 ? "" : ",", static_cast<double>(rings[index].*error) / 1000);
  out.add("]");
}

void add_span(Pieces& out, int rank, const ReadSpan& span) {
  // Holistic Trace Analysis finds steps by this name.
  const std::string name = span.kind == Kind::step ? fmt::format("ProfilerStep#{}", span.step) : span.name;
  out.add(",\n{{\"ph\":\"{}\",\"cat\":\"{}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{}.{:03}",
          span.length ? 'X' : 'B', is_of_stream(span.track) ? gpu_category_of(span.kind) : category_of(span.kind),
          json_text(name), rank, span.track, span.begin / 1000, span.begin % 1000);
  if (span.length) out.add(",\"dur\":{}.{:03}", *span.length / 1000, *span.length % 1000);
  if (span.kind == Kind::step) {
    out.add(",\"args\":{{\"step\":{},\"correlation\":{},\"what\":{}}}}}", span.step, correlation_of(span.step),
            json_text(span.name));
  } else if (is_of_stream(span.track) && span.kind != Kind::part) {
    out.add(",\"args\":{{\"step\":{},\"device\":{},\"stream\":{},\"correlation\":{}}}}}", span.step, rank,
            stream_number(span.track), correlation_of(span.step));
  } else {
    out.add(",\"args\":{{\"step\":{}}}}}", span.step);
  }
}

}  // namespace

Steps last_steps(std::span<const ReadRing> rings, std::uint32_t count) {
  Steps steps{0, 0};
  for (const ReadRing& ring : rings)
    for (const ReadSpan& span : ring.spans) steps.last = std::max(steps.last, span.step);
  steps.first = steps.last - std::min(steps.last, count > 0 ? count - 1 : 0);
  for (const ReadRing& ring : rings)
    // Of the step that the ring begins in, spans are missing.
    if (ring.lost > 0 && !ring.spans.empty()) steps.first = std::max(steps.first, ring.spans.front().step + 1);
  steps.first = std::min(steps.first, steps.last);
  return steps;
}

void write_chrome(std::span<const ReadRing> rings, const Steps& steps,
                  const std::function<void(std::string_view)>& write) {
  Pieces out{write};
  out.add("{}", chrome_begin);
  if (rings.size() == 1)
    // Holistic Trace Analysis looks for the rank with a regular expression, which wants the space.
    out.add("\"distributedInfo\":{{\"backend\":\"{}\",\"rank\": {},\"world_size\":{}}},\n",
            rings[0].device == "cpu" ? "mpi" : "nccl", rings[0].rank, rings[0].ranks);
  out.add("\"lockstep\":{{");
  add_errors(out, rings, "clock_error_us", &ReadRing::clock_error);
  out.add(",");
  add_errors(out, rings, "device_clock_error_us", &ReadRing::device_clock_error);
  out.add("}},\n\"traceEvents\":[");
  for (bool first = true; const ReadRing& ring : rings) {
    const auto shown = [&](const ReadSpan& span) { return span.step >= steps.first && span.step <= steps.last; };
    std::set<Track> tracks;
    for (const ReadSpan& span : ring.spans)
      if (shown(span)) tracks.insert(span.track);
    out.add("{}", first ? "\n" : ",\n");
    first = false;
    name_tracks(out, ring, tracks);
    for (const ReadSpan& span : ring.spans)
      if (shown(span)) add_span(out, ring.rank, span);
  }
  out.add("\n]}}\n");
  out.flush();
}

}  // namespace lockstep::trace
