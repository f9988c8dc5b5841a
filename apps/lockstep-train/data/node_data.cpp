#include "apps/lockstep-train/data/node_data.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/base/digest.hpp"
#include "core/base/log_settings.hpp"
#include "core/control/meeting_point.hpp"
#include "core/device/shared_memory.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

constexpr std::size_t before_block = 64;  // has room for the proof of the memory, and keeps arrays aligned

/// What the reader of a node has for the others.
struct Offer {
  SharedMemory::Handle handle = {};
  std::uint64_t bytes = 0;
};
constexpr std::size_t offer_numbers = (sizeof(Offer) + sizeof(std::int64_t) - 1) / sizeof(std::int64_t);

/// The ranks that read the same on the same node, as this one.
class Readers {
 public:
  Readers(ReplicaContext& context, std::string_view key) : context_{context} {
    const int node = group().node();
    const std::uint64_t mine = digest_of(fmt::format("{} {}", node, key));
    const std::vector<std::int64_t> keys = gathered(std::array{static_cast<std::int64_t>(mine)});
    first_ = static_cast<std::size_t>(std::ranges::find(keys, static_cast<std::int64_t>(mine)) - keys.begin());
    shared_ = std::set(keys.begin(), keys.end()).size() < keys.size();
  }

  /// Whether any ranks read the same: equal on all ranks of the job.
  bool any_shared() const { return shared_; }
  bool reads() const { return first_ == static_cast<std::size_t>(group().rank()); }
  MeetingPoint& meeting() const { return group().meeting(); }

  /// COLL. Gives the memory that the reader has made to the others. Nothing on all ranks if that fails on any.
  std::optional<SharedMemory> hand_over(std::optional<SharedMemory> made);

  /// Nothing, with what the system said.
  std::nullopt_t refused(const CommError& error) {
    refusal_ = error.what();
    log::debug(fmt::format("no shared memory for data: {}", refusal_));
    return std::nullopt;
  }

  /// What the system last said to this rank.
  std::string refusal() const { return refusal_.empty() ? "another rank has none" : refusal_; }

 private:
  ReplicaGroup& group() const { return inside(context_.strategy()).group(); }

  /// COLL. The numbers of all ranks.
  std::vector<std::int64_t> gathered(std::span<const std::int64_t> mine) const {
    return context_.all_gather(Tensor::from(std::vector<std::int64_t>{mine.begin(), mine.end()}, {std::ssize(mine)}))
        .to_vector<std::int64_t>();
  }

  ReplicaContext& context_;
  std::size_t first_ = 0;
  bool shared_ = false;
  std::string refusal_;
};

std::optional<SharedMemory> Readers::hand_over(std::optional<SharedMemory> made) {
  std::array<std::int64_t, offer_numbers> numbers{};
  Offer offer;
  if (made) offer = {made->handle(), made->bytes()};
  std::memcpy(numbers.data(), &offer, sizeof offer);
  const std::vector<std::int64_t> all = gathered(numbers);
  std::memcpy(static_cast<void*>(&offer), &all[first_ * offer_numbers], sizeof offer);
  if (!reads() && offer.handle.way != SharedMemory::Handle::Way::none) try {
      made.emplace(SharedMemory::open(offer.handle, offer.bytes));
    } catch (const CommError& error) {
      made = refused(error);
    }
  const std::vector<std::int64_t> have = gathered(std::array<std::int64_t, 1>{made ? 1 : 0});
  if (made && reads()) made->take_over();
  if (std::ranges::count(have, 0) > 0) made.reset();
  return made;
}

using Create = SharedMemory (*)(std::size_t bytes);

/// Nothing if the system has no such memory.
std::optional<SharedMemory> create(Readers& readers, Create way, std::size_t bytes) {
  try {
    return way(bytes);
  } catch (const CommError& error) {
    return readers.refused(error);
  }
}

/// COLL. How memory reaches the other ranks of the node; nothing if it does not.
Create find_way(Readers& readers) {
  for (const Create way : {SharedMemory::create, SharedMemory::create_named})
    if (readers.hand_over(readers.reads() ? create(readers, way, before_block) : std::nullopt)) return way;
  return nullptr;
}

/// The block in shared memory; nothing if the system has too little of it.
std::optional<SharedMemory> share(Readers& readers, BlockWriter block, Create way) {
  std::optional<SharedMemory> memory = create(readers, way, before_block + block.bytes());
  if (!memory) return std::nullopt;
  std::size_t written = before_block;
  try {
    memory->reserve(0, before_block);
    block.write([&](std::span<const std::byte> piece) {
      if (piece.empty()) return;
      memory->reserve(written, piece.size());  // as late as this, so that what is copied is free before the next
      std::memcpy(static_cast<std::byte*>(memory->data()) + written, piece.data(), piece.size());
      written += piece.size();
    });
  } catch (const CommError& error) {
    memory->take_over();
    return readers.refused(error);
  }
  return memory;
}

/// COLL.
std::optional<SharedMemory> read_and_share(Readers& readers, const std::function<BlockWriter()>& read, Create way) {
  if (!readers.reads()) return readers.hand_over(std::nullopt);
  const auto alone = readers.meeting().working_alone();
  return readers.hand_over(share(readers, read(), way));
}

}  // namespace

std::optional<BlockReader> read_once_a_node(std::string_view key, const std::function<BlockWriter()>& read) {
  ReplicaContext* const context = ReplicaContext::current();
  if (!context || context->num_replicas_in_sync() == 1) return std::nullopt;
  Readers readers{*context, key};
  if (!readers.any_shared()) return std::nullopt;
  const Create way = find_way(readers);
  std::optional<SharedMemory> memory = way ? read_and_share(readers, read, way) : std::nullopt;
  if (!memory) {
    if (readers.reads())
      log::info(fmt::format("the ranks of a node share no memory for data, so each of them reads all of it: {}",
                            readers.refusal()));
    return std::nullopt;
  }
  const auto kept = std::make_shared<const SharedMemory>(*std::move(memory));
  const std::span bytes{static_cast<const std::byte*>(kept->data()), kept->bytes()};
  return BlockReader{kept, bytes.subspan(before_block)};
}

}  // namespace lockstep
