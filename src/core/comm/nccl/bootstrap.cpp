#include "core/comm/nccl/bootstrap.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/deadline.hpp"
#include "core/base/log_settings.hpp"
#include "core/comm/backends.hpp"
#include "core/device/device.hpp"

namespace lockstep {
namespace {

/// How one rank came through a stage. Sent as bytes.
struct Report {
  /// From the one that is least to blame: `late` waited for others, `stalled` for its own GPU.
  enum class Outcome : std::uint8_t { done, late, stalled, failed_by_other, failed };

  Outcome outcome = Outcome::done;
  std::array<char, 511> text = {};

  Report() = default;
  Report(Outcome how, const char* what) : outcome{how} { std::strncpy(text.data(), what, text.size() - 1); }
};
static_assert(std::is_trivially_copyable_v<Report>);

/// Runs `stage` and reports how it ended. No exception may keep this rank from the others, which wait for its report.
Report report_of(const std::function<void()>& stage) {
  try {
    stage();
    return {};
  } catch (const NcclTimeout& error) {
    return {Report::Outcome::late, error.what()};
  } catch (const StallError& error) {
    return {Report::Outcome::stalled, error.what()};
  } catch (const NcclRemoteError& error) {
    return {Report::Outcome::failed_by_other, error.what()};
  } catch (const std::exception& error) {
    return {Report::Outcome::failed, error.what()};
  } catch (...) {
    return {Report::Outcome::failed, "an exception of an unknown type"};
  }
}

/// COLL. What ends the start on all ranks, if one failed.
std::optional<NcclStartError> verdict(Communicator& host, const Report& mine) {
  constexpr auto length = static_cast<std::int64_t>(sizeof(Report));
  std::vector<Report> reports(static_cast<std::size_t>(host.size()));
  std::vector<std::int64_t> bounds;
  for (int rank = 0; rank <= host.size(); ++rank) bounds.push_back(rank * length);
  reports[static_cast<std::size_t>(host.rank())] = mine;
  host.all_gather({reinterpret_cast<std::byte*>(reports.data()), {bounds.back()}, DType::u8}, bounds).wait();

  // A rank whose peer fails waits in vain, or sees that it is gone. The one that failed is to blame.
  using enum Report::Outcome;
  for (const auto blamed : {failed, failed_by_other, stalled, late}) {
    const auto is_blamed = [&](const Report& report) { return report.outcome == blamed; };
    const auto found = std::ranges::find_if(reports, is_blamed);
    if (found == reports.end()) continue;
    const bool nobody = blamed == late && std::ranges::all_of(reports, is_blamed);
    const bool in_vain = blamed == late || blamed == stalled;
    return NcclStartError{nobody ? -1 : static_cast<int>(found - reports.begin()),
                          in_vain ? NcclStartError::How::late : NcclStartError::How::failed, found->text.data()};
  }
  return std::nullopt;
}

/// Blocks the host until the GPU has come to `event` of the warm-up. CommError if that fails; if it takes too long,
/// NcclTimeout, or StallError if the GPU has not even come to `ahead`, where it waits for nobody yet. A wait of its
/// own: no rank watches another yet, and every rank reports how it went.
void wait_in_warm_up(NcclHandle& handle, int rank, Patience& patience, const Event& ahead, const Event& event) {
  while (!event.done()) {
    handle.check("the end of the warm-up");
    if (patience.is_over()) {
      const std::string late =
          fmt::format("was not done on rank {} after {:g} s", rank_in_messages(rank), patience.limit().count());
      if (!ahead.done()) throw StallError{"the copy before the first all-reduce " + late};
      throw NcclTimeout{"the first all-reduce " + late};
    }
    patience.pause();
  }
}

/// All-reduces one number whose sum is known, in `memory`. The first collective makes NCCL connect the ranks, so a
/// fault on the path between them shows here and not in the first training step.
void warm_up(NcclHandle& handle, const Buffer& memory, Stream& stream, int rank, int size, Patience& patience) {
  const std::int32_t mine = rank + 1;
  const std::int32_t expected = size * (size + 1) / 2;
  stream.copy(memory.data(), &mine, sizeof mine);
  const auto ahead = inside(stream).record();
  handle.call(
      "the warm-up",
      [&](NcclApi& api, ncclComm_t comm) {
        return NcclCall{"ncclAllReduce",
                        api.all_reduce(memory.data(), memory.data(), 1, ncclInt32, ncclSum, comm, stream)};
      },
      patience);
  wait_in_warm_up(handle, rank, patience, *ahead, *inside(stream).record());
  // Only now, because the host would wait for all that comes before the copy.
  std::int32_t sum = 0;
  stream.copy(&sum, memory.data(), sizeof sum);
  wait_in_warm_up(handle, rank, patience, *ahead, *inside(stream).record());
  if (sum != expected)
    throw CommError{fmt::format("the first all-reduce gave {} on rank {}, where {} ranks add up to {}", sum,
                                rank_in_messages(rank), size, expected)};
}

}  // namespace

StartedNccl start_nccl(Communicator& host, Device& device, const NcclTools& tools, Seconds timeout,
                       const std::function<void(std::exception_ptr)>& on_stuck,
                       std::shared_ptr<std::unique_ptr<Stream>> stream) {
  StartedNccl started;
  if (!stream) stream = std::make_shared<std::unique_ptr<Stream>>();
  ncclUniqueId id{};
  Buffer memory;
  const auto watched = [&](const char* what, Seconds limit, const std::function<void()>& stage) {
    return report_of([&] {
      std::optional<Deadline> deadline;
      if (on_stuck) {
        deadline.emplace("for the limit on the start of NCCL");
        deadline->set(limit, [&on_stuck, limit,
                              sentence = fmt::format("{} has not returned on {} of rank {}", what, device.name(),
                                                     rank_in_messages(host.rank()))] {
          on_stuck(std::make_exception_ptr(
              StallError{fmt::format("NCCL did not start: {} for {:g} s", sentence, limit.count())}));
        });
      }
      stage();
    });
  };
  const Report ready = watched("a call before ncclCommInitRankConfig", timeout, [&] {
    if (!*stream) *stream = device.make_stream();
    started.stream = {stream, stream->get()};
    memory = inside(*started.stream).allocate(sizeof(std::int32_t));
    started.handle = std::make_unique<NcclHandle>(tools, host.rank(), device.name());
    if (host.rank() == 0)
      check_nccl(*tools.api, {"ncclGetUniqueId", tools.api->get_unique_id(&id)}, device.name(), host.rank());
  });
  // Even if rank 0 has no id: the others wait for it, and learn why from its report.
  host.broadcast({reinterpret_cast<std::byte*>(id.internal), {NCCL_UNIQUE_ID_BYTES}, DType::u8}, 0).wait();
  if (const auto failure = verdict(host, ready)) throw *failure;

  Patience patience{*tools.clock, timeout};
  const std::pair<const char*, std::function<void()>> stages[] = {
      {"ncclCommInitRankConfig", [&] { started.handle->start(host.size(), id, patience); }},
      {"a call of the first all-reduce",
       [&] { warm_up(*started.handle, memory, *started.stream, host.rank(), host.size(), patience); }},
  };
  // These wait for the timeout themselves.
  constexpr Seconds longer{1};
  for (const auto& [what, stage] : stages) {
    if (const auto failure = verdict(host, watched(what, timeout + longer, stage))) {
      started.handle->abort();
      throw *failure;
    }
  }
  if (host.rank() == 0) log::debug(fmt::format("NCCL {} runs among {} ranks", tools.api->version(), host.size()));
  return started;
}

}  // namespace lockstep
