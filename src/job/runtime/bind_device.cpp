// Which device a rank owns, and the plane for its memory.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/log.hpp>

#include "core/base/exit_code.hpp"
#include "core/cluster/device_list.hpp"
#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/control/exceptions.hpp"
#include "core/device/devices.hpp"
#include "job/runtime/observed_stall.hpp"
#include "job/runtime/runtime_parts.hpp"

namespace lockstep {
namespace {

/// The opposite of a list joined by commas.
VisibleGpus parse_uuids(const std::string& text) {
  VisibleGpus uuids;
  for (std::size_t first = 0; first < text.size();) {
    const std::size_t comma = std::min(text.find(',', first), text.size());
    uuids.push_back(text.substr(first, comma - first));
    first = comma + 1;
  }
  return uuids;
}

std::unique_ptr<Device> make_device(const DeviceBinding& binding) {
  return binding.kind == DeviceKind::cuda ? make_cuda_device(binding.index) : make_host_device();
}

}  // namespace

void Runtime::Impl::bind() {
  NodePlace place;
  DeviceList chosen;
  std::string own;
  mpi.together("looking for devices", [&] {
    place.requested = parse_device_request(mpi.options.device);
    if (!mpi.options.devices.empty()) {
      if (place.requested)
        throw ConfigError{fmt::format("--device {} and --devices were both given: expected at most one of the two",
                                      mpi.options.device)};
      chosen = DeviceList::parse(mpi.options.devices);
      place.requested = chosen.kind();
    }
    if (place.requested != DeviceKind::cpu) own = fmt::format("{}", fmt::join(cuda_device_uuids(), ","));
  });
  std::vector<VisibleGpus> gpus;
  for (const std::string& each : mpi.gather_texts(own)) gpus.push_back(parse_uuids(each));
  std::vector<std::string> why_none(gpus.size());
  if (place.requested != DeviceKind::cpu && std::ranges::any_of(gpus, &VisibleGpus::empty))
    why_none = mpi.gather_texts(detail::why_no_cuda_device());
  place.requested = settle(place.requested, gpus, why_none);
  place.rank_in_node = mpi.node.place;
  for (const int rank : mpi.node.ranks) {
    place.visible.push_back(gpus[static_cast<std::size_t>(rank)]);
    place.why_none.push_back(why_none[static_cast<std::size_t>(rank)]);
  }
  place.allow_shared_gpu = mpi.options.allow_shared_gpu;
  DeviceBinding binding;
  mpi.together("binding the device", [&] {
    place.chosen = chosen.gpus_of(mpi.node.ranks, *mpi.ranks);
    binding = bind_device(place);
    device = make_device(binding);
  });
  if (const auto unused = unused_gpus(place); !unused.empty() && mpi.node.place == 0)
    log::info(fmt::format("GPUs of this node that no rank uses: {}", fmt::join(unused, ", ")));
  std::vector<int> numbers;
  if (!chosen.empty())
    for (const std::string& number : mpi.gather_texts(fmt::format("{}", binding.index)))
      numbers.push_back(std::atoi(number.c_str()));
  group->set_device_names([&ranks = *mpi.ranks, kind = binding.kind, numbers](int rank) {
    const auto number = numbers.empty() ? std::nullopt : std::optional{numbers[static_cast<std::size_t>(rank)]};
    return ranks.device_name(rank, kind, number);
  });
  if (device->kind() == DeviceKind::cuda) add_device_plane(place);
}

/// Chooses one kind of device for all ranks from what each of them found. The result is the same on every rank.
DeviceRequest Runtime::Impl::settle(DeviceRequest requested, std::span<const VisibleGpus> gpus,
                                    std::span<const std::string> why_none) {
  std::vector<int> counts;
  for (const VisibleGpus& each : gpus) counts.push_back(static_cast<int>(each.size()));
  const bool some = std::ranges::any_of(counts, [](int count) { return count > 0; });
  const DeviceRequest settled = settle_request(requested, counts);
  if (settled == requested || group->rank() != 0) return settled;
  if (!some) {
    log::info(fmt::format("no GPU was found: running on the CPU ({})", why_none.front()));
  } else {
    const auto without = static_cast<std::size_t>(std::ranges::find(counts, 0) - counts.begin());
    log::warning(fmt::format("{} finds no GPU, though others do: all ranks run on the CPU ({})",
                             mpi.names[static_cast<int>(without)], why_none[without]));
  }
  return settled;
}

void Runtime::Impl::add_device_plane(const NodePlace& place) {
  if (shares_gpu(place) && group->rank() == 0)
    log::warning("ranks of this node share a GPU and take turns there: for tests, not for speed");
  std::unique_ptr<Stream> compute;
  mpi.together("making a stream", [&] { compute = device->make_stream(); });
  detail::DevicePatience patience{.stall_timeout = mpi.options.stall_timeout};
  if (mpi.options.on_stall == RuntimeOptions::OnStall::observe) patience.on_stall = warn_of_stall;
  if (group->size() == 1) {
    // A rank alone has nobody to talk to: NCCL would take seconds to start, for nothing.
    auto data = make_local_communicator(*compute);
    group->add_device_plane(std::move(compute), std::move(data), std::move(patience));
    return;
  }
  mpi.together("starting NCCL", [&] {
    const auto start = [this, &stream = *compute, nccl = nccl_options()](Communicator& host) {
      return start_nccl(host, stream, nccl);
    };
    if (auto data = start(group->host_plane()))
      group->add_device_plane(std::move(compute), std::move(data), std::move(patience), start);
  });
}

NcclOptions Runtime::Impl::nccl_options() {
  NcclOptions nccl;
  nccl.init_timeout = mpi.options.stall_timeout;
  // The watchdogs have two seconds to find who is late. Where they only warn, nothing ends the job.
  nccl.enqueue_timeout = mpi.options.stall_timeout +
                         std::chrono::seconds{mpi.options.on_stall == RuntimeOptions::OnStall::observe ? 1000000 : 2};
  nccl.progress = [this] { return mpi.meeting().progress(); };
  // The other ranks are inside the collective and cannot be told.
  nccl.on_failure = [this](const std::exception_ptr& failure) {
    // What this rank sees of a failure that all ranks know of needs no line.
    if (!mpi.end.has_failed()) mpi.end.alone(message_of(failure), exit_code_of(failure));
  };
  nccl.stream = std::make_shared<std::unique_ptr<Stream>>();
  return nccl;
}

/// Null where another rank is to blame: this one learns it with all others, at the agreement that follows.
std::unique_ptr<Communicator> Runtime::Impl::start_nccl(Communicator& host, Stream& compute, const NcclOptions& nccl) {
  try {
    return make_nccl_communicator(host, *device, compute, nccl);
  } catch (const NcclStartError& error) {
    if (error.rank() >= 0 && error.rank() != host.rank()) return nullptr;
    const std::string text = error.rank() < 0 ? error.what() : "NCCL did not start: " + error.words();
    if (error.is_late()) throw StallError{text};
    throw CommError{text};
  }
}

}  // namespace lockstep
