#include "operation.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "sums.hpp"

namespace cusim {
namespace {

std::size_t element_bytes(const Call& call) {
  return bytes_of(static_cast<ncclDataType_t>(call.header.type));
}

/// Of the argument `count`, which is a rank's part where the ranks have parts.
std::size_t bytes_of_count(const Call& call) {
  return call.header.count * element_bytes(call);
}

bool is_point_to_point(const Call& call) {
  return call.header.kind == Kind::send;
}

bool is_to_self(const Call& call, const Place& place) {
  return is_point_to_point(call) && call.header.root == place.rank;
}

bool overlap(Range a, Range b) {
  return a.bytes && b.bytes && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

/// Where NCCL lets one buffer be both.
bool is_in_place(const Call& call, const Place& place) {
  const std::size_t mine = static_cast<std::size_t>(place.rank) * bytes_of_count(call);
  if (call.header.kind == Kind::all_gather) return call.from == call.to + mine;
  if (call.header.kind == Kind::reduce_scatter) return call.to == call.from + mine;
  return call.from == call.to;
}

/// Where a fault makes an operation hang.
bool hangs_in_middle() {
  const Hang hang = settings().hang;
  return hang == Hang::drawn ? draw("nccl hang", 2) == 0 : hang == Hang::middle;
}

}  // namespace

Range range_read(const Call& call, const Place& place) {
  const std::size_t bytes = bytes_of_count(call);
  const bool is_root = call.header.root == place.rank;
  switch (call.header.kind) {
    case Kind::send: return call.receives ? Range{} : Range{call.from, bytes};
    case Kind::broadcast: return is_root ? Range{call.from, bytes} : Range{};
    case Kind::reduce_scatter: return {call.from, bytes * static_cast<std::size_t>(place.size)};
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::all_gather: return {call.from, bytes};
    case Kind::goodbye: break;
  }
  return {};
}

Range range_written(const Call& call, const Place& place) {
  const std::size_t bytes = bytes_of_count(call);
  switch (call.header.kind) {
    case Kind::send: return call.receives ? Range{call.to, bytes} : Range{};
    case Kind::reduce: return call.header.root == place.rank ? Range{call.to, bytes} : Range{};
    case Kind::all_gather: return {call.to, bytes * static_cast<std::size_t>(place.size)};
    case Kind::broadcast:
    case Kind::all_reduce:
    case Kind::reduce_scatter: return {call.to, bytes};
    case Kind::goodbye: break;
  }
  return {};
}

Piece::Piece(std::vector<Call> calls) : calls_{std::move(calls)} {
  std::stable_partition(calls_.begin(), calls_.end(), [](const Call& call) { return !is_point_to_point(call); });
}

ncclResult_t Piece::check(const Place& place, std::string& problem) const {
  std::vector<std::uint64_t> sent, received;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    if (is_to_self(call, place)) (call.receives ? received : sent).push_back(bytes_of_count(call));
    const Range written = range_written(call, place);
    if (overlap(range_read(call, place), written) && !is_in_place(call, place))
      found(fmt::format("{}: the two buffers overlap without being the same", call.name()));
    for (std::size_t j = 0; j < calls_.size(); ++j) {
      const Range others = range_written(calls_[j], place);
      if (j != i && (overlap(written, others) || overlap(range_read(call, place), others)))
        found(fmt::format("{} uses memory that {} of the same group writes", call.name(), calls_[j].name()));
    }
  }
  if (sent == received) return ncclSuccess;
  problem = "a send to oneself without its receive in the same group, or with another count";
  return ncclInvalidUsage;
}

void Piece::start(Place& place) {
  parts_.clear();
  parts_.resize(calls_.size());
  for (std::size_t i = 0; i < calls_.size(); ++i) start_one(calls_[i], parts_[i], place);
}

void Piece::start_one(const Call& call, Part& part, Place& place) {
  if (call.fault.kind == FaultKind::hang) {
    ++part.outstanding.parts;
    if (!hangs_in_middle()) return;
  }
  const Header& header = call.header;
  const std::size_t bytes = bytes_of_count(call);
  const Range read = range_read(call, place);
  if (read.bytes) reads(read.begin, read.bytes, call.name());
  part.outstanding.seed = header.seed;
  part.received.resize(static_cast<std::size_t>(place.size));
  const bool is_root = header.root == place.rank;
  if (is_point_to_point(call)) {
    if (is_to_self(call, place)) return;
    if (call.receives)
      expect(place, header.root, call, part, call.to, bytes);
    else
      send(place, header.root, call, part, {call.from, bytes});
    return;
  }
  place.for_each_peer([&](int peer) {
    const std::size_t offset = static_cast<std::size_t>(peer) * bytes;
    const bool from_root = header.root == peer;
    switch (header.kind) {
      case Kind::all_reduce:
        send(place, peer, call, part, {call.from, bytes});
        expect_for_sum(place, peer, call, part, bytes);
        break;
      case Kind::reduce_scatter:
        send(place, peer, call, part, {call.from + offset, bytes});
        expect_for_sum(place, peer, call, part, bytes);
        break;
      case Kind::all_gather:
        send(place, peer, call, part, {call.from, bytes});
        expect(place, peer, call, part, call.to + offset, bytes);
        break;
      case Kind::broadcast:
        is_root ? send(place, peer, call, part, {call.from, bytes}) : tell(place, peer, call);
        from_root ? expect(place, peer, call, part, call.to, bytes) : expect_word(place, peer, call);
        break;
      case Kind::reduce:
        from_root ? send(place, peer, call, part, {call.from, bytes}) : tell(place, peer, call);
        is_root ? expect_for_sum(place, peer, call, part, bytes) : expect_word(place, peer, call);
        break;
      case Kind::send:
      case Kind::goodbye: break;
    }
  });
}

void Piece::send(Place& place, int peer, const Call& call, Part& part, Range data) {
  Header header = call.header;
  if (is_point_to_point(call)) header.root = 0;
  // NCCL's guide lets a send wait for its receive; what is small need not.
  const bool waits = is_point_to_point(call) && data.bytes && draw("nccl send", 2) == 0;
  ++part.outstanding.parts;
  place.to(peer).send({header, data.begin, data.bytes, waits, &part.outstanding,
                       call.fault.kind == FaultKind::hang ? data.bytes / 2 : SIZE_MAX});
}

/// So that the peer can see what this rank calls, though it gets no data.
void Piece::tell(Place& place, int peer, const Call& call) {
  place.to(peer).send({.header = call.header});
}

void Piece::expect(Place& place, int peer, const Call& call, Part& part, std::byte* to, std::size_t bytes) {
  Header header = call.header;
  if (is_point_to_point(call)) header.root = 0;
  ++part.outstanding.parts;
  place.to(peer).expect({header, to, bytes, true, &part.outstanding});
}

void Piece::expect_word(Place& place, int peer, const Call& call) {
  place.to(peer).expect({.expected = call.header});
}

void Piece::expect_for_sum(Place& place, int peer, const Call& call, Part& part, std::size_t bytes) {
  auto& room = part.received[static_cast<std::size_t>(peer)];
  room = std::make_unique_for_overwrite<std::byte[]>(bytes);
  ++part.outstanding.parts;
  place.to(peer).expect({call.header, room.get(), bytes, false, &part.outstanding});
}

bool Piece::is_complete() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.outstanding.parts == 0; });
}

void Piece::finish(const Place& place) {
  for (std::size_t i = 0; i < calls_.size(); ++i) finish_one(calls_[i], parts_[i], place);
  copy_to_self(place);
  parts_.clear();
}

void Piece::give_up(const Place& place) const {
  for (const Call& call : calls_)
    if (const Range written = range_written(call, place); written.bytes)
      writes(written.begin, written.bytes, call.name());
}

void Piece::finish_one(const Call& call, Part& part, const Place& place) {
  const Header& header = call.header;
  const std::size_t bytes = bytes_of_count(call);
  const std::size_t offset = static_cast<std::size_t>(place.rank) * bytes;
  const bool is_root = header.root == place.rank;
  const auto copy = [&](std::byte* to) {
    if (to == call.from) return;
    writes(to, bytes, call.name());
    std::memcpy(to, call.from, bytes);
  };
  const auto sum = [&](const std::byte* mine) {
    std::vector<const std::byte*> from;
    for (const auto& received : part.received) from.push_back(received.get());
    from[static_cast<std::size_t>(place.rank)] = mine;
    writes(call.to, bytes, call.name());
    reduce(static_cast<ncclRedOp_t>(header.op), static_cast<ncclDataType_t>(header.type),
           {settings().sums_by_rank, part.outstanding.seed}, from, call.to, header.count);
  };
  switch (header.kind) {
    case Kind::all_reduce: return sum(call.from);
    case Kind::reduce_scatter: return sum(call.from + offset);
    case Kind::reduce: return is_root ? sum(call.from) : void();
    case Kind::broadcast: return is_root ? copy(call.to) : void();
    case Kind::all_gather: return copy(call.to + offset);
    case Kind::send:
    case Kind::goodbye: break;
  }
}

void Piece::copy_to_self(const Place& place) {
  std::vector<const Call*> sent, received;
  for (const Call& call : calls_)
    if (is_to_self(call, place)) (call.receives ? received : sent).push_back(&call);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const std::size_t bytes = bytes_of_count(*sent[i]);
    if (!bytes) continue;
    writes(received[i]->to, bytes, "ncclRecv");
    std::memcpy(received[i]->to, sent[i]->from, bytes);
  }
}

std::string Piece::text() const {
  return calls_.size() == 1 ? calls_.front().name() : fmt::format("a group of {} calls", calls_.size());
}

const Injected* Piece::fault(FaultKind kind) const {
  const auto place =
      std::find_if(calls_.begin(), calls_.end(), [&](const Call& call) { return call.fault.kind == kind; });
  return place == calls_.end() ? nullptr : &place->fault;
}

}  // namespace cusim
