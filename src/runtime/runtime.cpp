#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <lockstep/base/log.hpp>
#include <lockstep/runtime/runtime.hpp>

#include "base/excerpt.hpp"
#include "base/exit_code.hpp"
#include "base/host_name.hpp"
#include "base/log_settings.hpp"
#include "base/open_line.hpp"
#include "base/supervised_job.hpp"
#include "cluster/device_list.hpp"
#include "cluster/launch.hpp"
#include "cluster/rank_map.hpp"
#include "cluster/tf_config.hpp"
#include "comm/backends.hpp"
#include "comm/communicator.hpp"
#include "control/channel.hpp"
#include "control/exceptions.hpp"
#include "control/kept_signals.hpp"
#include "control/meeting_point.hpp"
#include "control/network.hpp"
#include "control/report_claim.hpp"
#include "control/stop_signal.hpp"
#include "control/tag.hpp"
#include "control/watchdog.hpp"
#include "device/cuda.hpp"
#include "device/device.hpp"
#include "device/devices.hpp"
#include "reduce/reduction_choice.hpp"
#include "runtime/foreign_launch.hpp"
#include "runtime/job_end.hpp"
#include "runtime/launcher.hpp"
#include "runtime/mpi_session.hpp"
#include "runtime/node.hpp"
#include "runtime/observed_stall.hpp"
#include "runtime/sibling_watch.hpp"
#include "runtime/siblings.hpp"

namespace lockstep {
namespace {

std::vector<std::string> plain_names(int ranks) {
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks; ++rank) names.push_back(fmt::format("replica {}", rank));
  return names;
}

std::unique_ptr<ReplicaGroup> make_mpi_group() {
  auto control = make_mpi_channel();
  auto names = plain_names(control->size());
  return std::make_unique<ReplicaGroup>(make_mpi_communicator(), std::move(control), std::move(names));
}

/// COLL. Every rank's `text`, in rank order.
std::vector<std::string> gather_texts(ControlChannel& channel, const std::string& text) {
  const auto [longest, unused] = channel.max({text.size(), 0});
  std::string mine = text;
  mine.resize(longest + 1);
  std::string all(mine.size() * static_cast<std::size_t>(channel.size()), '\0');
  channel.all_gather(std::as_bytes(std::span{mine}), std::as_writable_bytes(std::span{all}));
  std::vector<std::string> texts;
  for (std::size_t first = 0; first < all.size(); first += mine.size()) texts.emplace_back(all.data() + first);
  return texts;
}

/// COLL. Rank 0's `text` on every rank.
std::string broadcast_text(ControlChannel& channel, std::string text) {
  const auto [size, unused] = channel.max({channel.rank() == 0 ? text.size() : 0, 0});
  text.resize(size);
  channel.broadcast(std::as_writable_bytes(std::span{text}), 0);
  return text;
}

void tell_supervisor() {
  if (!std::getenv(supervised_variable)) return;
  const std::string line = fmt::format("{}\n", begun_line);
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

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

/// What NCCL must find in the environment. The environment may be written only before there are other threads.
struct NcclEnvironment {
  explicit NcclEnvironment(const RuntimeOptions& options) {
    if (options.allow_shared_gpu) allow_shared_gpu();
  }
};

struct StopSignal {
  explicit StopSignal(const RuntimeOptions& options) {
    if (options.stop_signal != 0) catch_stop_signal(options.stop_signal);
  }
};

struct OwnLauncher {
  OwnLauncher() { refuse_foreign_launch(); }
};

std::unique_ptr<Device> make_device(const DeviceBinding& binding) {
  return binding.kind == DeviceKind::cuda ? make_cuda_device(binding.index) : make_host_device();
}

}  // namespace

/// Members in order of acquisition; they are destroyed in reverse.
struct Runtime::Impl {
  NcclEnvironment nccl_environment;  ///< before MPI, which starts threads
  std::string launch = launch_warning([](const char* name) { return std::getenv(name); });
  StopSignal stop_signal;  ///< before MPI, whose start takes time
  KeptSignals signals;     ///< held through all watches, which take turns
  OwnLauncher can_start_mpi;
  MpiSession session;
  OwnLauncher has_started_mpi;
  std::unique_ptr<Device> device;  ///< bound later; the group, which uses it, is destroyed first
  std::unique_ptr<ReplicaGroup> group;
  JobEnd end;
  RuntimeOptions options;
  Node node;
  std::optional<RankMap> ranks;
  std::vector<std::string> names;
  std::optional<Watchdog> watchdog;
  std::optional<Strategy> strategy;
  int exceptions_before = std::uncaught_exceptions();

  Impl(int& argc, char**& argv, const RuntimeOptions& given)
      : nccl_environment{given},
        stop_signal{given},
        session{argc, argv, given.stall_timeout, given.on_stall},
        group{make_mpi_group()},
        end{*group, fmt::format("replica {}", group->rank())} {
    log::set_rank(group->rank());
    if (given.stop_signal != 0) meeting().set_stop_source(stop_signal_has_come);
  }

  ~Impl() {
    end.leave();
    // Instead of ending NCCL together: a GPU that has failed does not come, and the others would wait for it.
    if (end.has_failed()) group->abort();
    watchdog.reset();
    meeting().set_phases(nullptr);
    end.set_phases(nullptr);
    share_open_line(nullptr);
    session.ending(std::move(node.phases), node.ranks);
  }

  MeetingPoint& meeting() { return group->meeting(); }
  ControlChannel& channel() { return group->meeting().channel(); }

  /// COLL. Runs `step` on every rank; if it fails on one, it fails on all. Its own collectives must fail on all ranks
  /// or none.
  template <class Step>
  void together(const char* name, Step&& step, Here here = Here::current()) {
    try {
      step();
    } catch (...) {
      meeting().fail(std::current_exception());
    }
    meeting().agree(TagKind::start, 0, here, name);
  }

  void start(const std::function<RuntimeOptions()>& make_options);
  void watch(RuntimeOptions::OnTermination on_termination);
  void compare_options();
  void read_cluster();
  void bind();
  DeviceRequest settle(DeviceRequest requested, std::span<const VisibleGpus> gpus,
                       std::span<const std::string> why_none);
  void add_device_plane(const NodePlace& place);
};

void Runtime::Impl::start(const std::function<RuntimeOptions()>& make_options) {
  together("options", [&] {
    options = make_options();
    if (!(options.stall_timeout.count() > 0))
      throw ConfigError{
          fmt::format("stall timeout {}: expected a positive number of seconds", options.stall_timeout.count())};
    require_valid(options.reductions);
    if (!options.network.empty()) (void)address_for_heartbeats(options.network);
  });
  if (group->rank() == 0) tell_supervisor();
  if (group->size() == 1 && !launch.empty()) log::warning(launch);
  node = find_node(options.network);
  group->set_nodes(node.of_rank);
  if (node.phases) {
    meeting().set_phases(&*node.phases);
    end.set_phases(&*node.phases);
    share_open_line(&node.phases->open_line());
  } else {
    log::warning("this node shares no memory between processes: a rank that stops here will not be found");
  }
  names = plain_names(group->size());
  watch(RuntimeOptions::OnTermination::end);
  compare_options();
  read_cluster();
  bind();
  // From here on messages name task and host.
  watchdog.reset();
  watch(options.on_termination);
  strategy.emplace(*group, options.reductions);
}

void Runtime::Impl::watch(RuntimeOptions::OnTermination on_termination) {
  session.started();
  // Nobody would act on a signal.
  if (!node.phases) return signals.let_through();
  WatchdogOptions watching{.stall_timeout = options.stall_timeout};
  if (options.on_stall == RuntimeOptions::OnStall::observe) watching.on_stall = warn_of_stall;
  if (on_termination == RuntimeOptions::OnTermination::ask_to_stop)
    watching.on_interrupted = [this] { meeting().request_stop(); };
  if (rank_from_launcher()) watching.on_orphaned = [] { end_without_launcher(ExitCode::stall); };
  watchdog.emplace(
      *node.phases, names, std::move(watching),
      [this](ExitCode code, Reach reach) {
        group->abort();
        if (reach == Reach::whole_job) MpiSession::abort_job(static_cast<int>(code));
        end_this_side(code, reach, node.place);
      },
      node.heartbeats.get());
}

void Runtime::Impl::compare_options() {
  const auto all = gather_texts(
      channel(), fmt::format("lockstep " LOCKSTEP_VERSION ", device {}{}{}{}, {}, stall timeout {} s{}{}, {}",
                             options.device, options.devices.empty() ? "" : fmt::format(" {}", options.devices),
                             options.allow_shared_gpu ? " that may be shared" : "",
                             options.needs_cpu.empty() ? "" : fmt::format(" ({})", options.needs_cpu),
                             describe(options.reductions), options.stall_timeout.count(),
                             options.on_stall == RuntimeOptions::OnStall::observe ? " (observed)" : "",
                             options.network.empty() ? "" : ", network " + options.network, options.program_options));
  together("comparing the options", [&] {
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank] != all[0])
        throw ConfigError{fmt::format(
            "replica {} was started with other options than replica 0: '{}' there, '{}' here; expected the same", rank,
            excerpt_from_difference(all[rank], all[0]), excerpt_from_difference(all[0], all[rank]))};
  });
}

void Runtime::Impl::read_cluster() {
  const char* const tf_config = std::getenv("TF_CONFIG");
  const bool from_environment = options.cluster_spec.empty() && tf_config && *tf_config;
  std::string text;
  together("reading the cluster spec", [&] {
    if (group->rank() != 0) return;
    if (!options.cluster_spec.empty()) text = read_cluster_spec(options.cluster_spec);
    if (from_environment) text = tf_config;
  });
  text = broadcast_text(channel(), std::move(text));
  const auto hosts = gather_texts(channel(), host_name());

  std::optional<TfConfig> own;  // what this rank's own environment says
  together("parsing the cluster spec", [&] {
    if (!options.cluster_spec.empty()) {
      ranks.emplace(ClusterSpec::parse(text, options.cluster_spec.string()), group->size());
    } else if (!text.empty()) {
      ranks.emplace(parse_tf_config(text).cluster, group->size());
      if (from_environment) own = parse_tf_config(tf_config);
      if (own && own->cluster.canonical() != ranks->spec().canonical())
        throw ConfigError{"TF_CONFIG: its cluster is not the one that replica 0 has; expected the same on every rank"};
    } else {
      ranks.emplace(ClusterSpec::one_task_per_rank(group->size()), group->size());
    }
    ranks->require_tasks_on_one_node(hosts);
    ranks->require_tasks_where_named(hosts);
  });
  if (const std::string doubt = ranks->doubt_about_nodes(hosts); group->rank() == 0 && !doubt.empty())
    log::warning(doubt);

  const auto task_texts = gather_texts(
      channel(), own && own->task ? fmt::format("{} {}", own->task->type, own->task->index) : std::string{});
  together("matching tasks with ranks", [&] {
    std::vector<std::optional<Task>> tasks;
    for (const std::string& each : task_texts) {
      const auto space = each.find(' ');
      tasks.push_back(each.empty() ? std::nullopt
                                   : std::optional{Task{each.substr(0, space), std::atoi(each.c_str() + space)}});
    }
    require_tasks_match_ranks(tasks, *ranks);
  });

  for (int rank = 0; rank < group->size(); ++rank)
    names[static_cast<std::size_t>(rank)] = ranks->describe_replica(rank, hosts[static_cast<std::size_t>(rank)]);
  meeting().set_names(names);
  end.set_name(names[static_cast<std::size_t>(group->rank())]);
}

void Runtime::Impl::bind() {
  NodePlace place;
  DeviceList chosen;
  std::string own;
  together("looking for devices", [&] {
    place.requested = parse_device_request(options.device);
    if (!options.devices.empty()) {
      if (place.requested)
        throw ConfigError{
            fmt::format("--device {} and --devices were both given: expected at most one of the two", options.device)};
      chosen = DeviceList::parse(options.devices);
      place.requested = chosen.kind();
    }
    if (place.requested != DeviceKind::cpu) own = fmt::format("{}", fmt::join(cuda_device_uuids(), ","));
  });
  std::vector<VisibleGpus> gpus;
  for (const std::string& each : gather_texts(channel(), own)) gpus.push_back(parse_uuids(each));
  std::vector<std::string> why_none(gpus.size());
  if (place.requested != DeviceKind::cpu && std::ranges::any_of(gpus, &VisibleGpus::empty))
    why_none = gather_texts(channel(), detail::why_no_cuda_device());
  place.requested = settle(place.requested, gpus, why_none);
  place.rank_in_node = node.place;
  for (const int rank : node.ranks) {
    place.visible.push_back(gpus[static_cast<std::size_t>(rank)]);
    place.why_none.push_back(why_none[static_cast<std::size_t>(rank)]);
  }
  place.allow_shared_gpu = options.allow_shared_gpu;
  DeviceBinding binding;
  together("binding the device", [&] {
    place.chosen = chosen.gpus_of(node.ranks, *ranks);
    binding = bind_device(place);
    device = make_device(binding);
  });
  if (const auto unused = unused_gpus(place); !unused.empty() && node.place == 0)
    log::info(fmt::format("GPUs of this node that no rank uses: {}", fmt::join(unused, ", ")));
  std::vector<std::string> numbers(static_cast<std::size_t>(group->size()));
  if (!chosen.empty()) numbers = gather_texts(channel(), fmt::format("{}", binding.index));
  std::vector<std::string> devices;
  for (int rank = 0; rank < group->size(); ++rank) {
    const std::string& number = numbers[static_cast<std::size_t>(rank)];
    devices.push_back(ranks->device_name(rank, binding.kind,
                                         number.empty() ? std::nullopt : std::optional{std::atoi(number.c_str())}));
  }
  group->set_device_names(std::move(devices));
  if (device->kind() == DeviceKind::cuda) add_device_plane(place);
}

/// Chooses one kind of device for all ranks from what each of them found. The result is the same on every rank.
DeviceRequest Runtime::Impl::settle(DeviceRequest requested, std::span<const VisibleGpus> gpus,
                                    std::span<const std::string> why_none) {
  std::vector<int> counts;
  for (const VisibleGpus& each : gpus) counts.push_back(static_cast<int>(each.size()));
  const bool some = std::ranges::any_of(counts, [](int count) { return count > 0; });
  const bool needs_cpu = !requested && some && !options.needs_cpu.empty();
  const DeviceRequest settled = needs_cpu ? DeviceKind::cpu : settle_request(requested, counts);
  if (settled == requested || group->rank() != 0) return settled;
  if (needs_cpu) {
    log::warning(fmt::format("{}: all ranks run on the CPU, though there are GPUs", options.needs_cpu));
  } else if (!some) {
    log::info(fmt::format("no GPU was found: running on the CPU ({})", why_none.front()));
  } else {
    const auto without = static_cast<std::size_t>(std::ranges::find(counts, 0) - counts.begin());
    log::warning(fmt::format("{} finds no GPU, though others do: all ranks run on the CPU ({})", names[without],
                             why_none[without]));
  }
  return settled;
}

void Runtime::Impl::add_device_plane(const NodePlace& place) {
  if (shares_gpu(place) && group->rank() == 0)
    log::warning("ranks of this node share a GPU and take turns there: for tests, not for speed");
  auto compute = device->make_stream();
  detail::DevicePatience patience{.stall_timeout = options.stall_timeout};
  if (options.on_stall == RuntimeOptions::OnStall::observe) patience.on_stall = warn_of_stall;
  if (group->size() == 1) {
    // A rank alone has nobody to talk to: NCCL would take seconds to start, for nothing.
    auto data = make_local_communicator(*compute);
    group->add_device_plane(std::move(compute), std::move(data), std::move(patience));
    return;
  }
  NcclOptions nccl;
  nccl.init_timeout = options.stall_timeout;
  // The watchdogs have two seconds to find who is late. Where they only warn, nothing ends the job.
  nccl.enqueue_timeout =
      options.stall_timeout + std::chrono::seconds{options.on_stall == RuntimeOptions::OnStall::observe ? 1000000 : 2};
  // The other ranks are inside the collective and cannot be told.
  nccl.on_failure = [this](const std::exception_ptr& failure) {
    end.alone(message_of(failure), exit_code_of(failure));
  };
  together("starting NCCL", [&] {
    auto data = make_nccl_communicator(group->host_plane(), *device, *compute, std::move(nccl));
    group->add_device_plane(std::move(compute), std::move(data), std::move(patience));
  });
}

Runtime::Runtime(int& argc, char**& argv, RuntimeOptions options)
    : Runtime{std::make_unique<Impl>(argc, argv, options)} {
  impl_->start([&] { return options; });
}

Runtime::Runtime(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}

Runtime::~Runtime() {
  if (std::uncaught_exceptions() <= impl_->exceptions_before) return;
  // During unwinding a destructor cannot see the exception, only whether all ranks know of it.
  if (const auto& failure = impl_->meeting().failure()) {
    impl_->end.after(failure->exception);
  } else {
    impl_->end.alone("it left with an exception", ExitCode::failure);
  }
}

Strategy& Runtime::strategy() {
  return *impl_->strategy;
}

Strategy Runtime::make_strategy(Here here) {
  return make_strategy(impl_->options.reductions, here);
}
Strategy Runtime::make_strategy(const ReductionOptions& reductions, Here here) {
  return lockstep::make_strategy(*impl_->group, reductions, here);
}

int Runtime::rank() const {
  return impl_->group->rank();
}
int Runtime::size() const {
  return impl_->group->size();
}

struct Runtime::Alone::Mark {
  MeetingPoint::Alone alone;
};
Runtime::Alone::Alone(std::unique_ptr<Mark> mark) : mark_{std::move(mark)} {}
Runtime::Alone::~Alone() = default;

Runtime::Alone Runtime::working_alone() {
  return Alone{std::unique_ptr<Alone::Mark>{new Alone::Mark{impl_->meeting().working_alone()}}};
}
std::string Runtime::device_name() const {
  return impl_->device->name();
}

std::chrono::nanoseconds Runtime::watchdog_cpu_time() const {
  return impl_->watchdog ? impl_->watchdog->cpu_time() : std::chrono::nanoseconds{0};
}

/// The part of run_program from the start of MPI to its end. `wrong`, an error in the options, is reported once for the
/// job, so only after the ranks know each other.
int Runtime::run_job(int& argc, char**& argv, const RuntimeOptions& options, const std::exception_ptr& wrong,
                     const std::function<void(Runtime&)>& body) {
  std::unique_ptr<Impl> impl;
  try {
    impl = std::make_unique<Impl>(argc, argv, options);
  } catch (const std::exception& error) {
    if (claim_report(nullptr)) {
      print_last_line(fmt::format("lockstep: error: {}", one_line(error.what())));
      if (ranks_on_this_node() > 1) std::this_thread::sleep_for(until_claim_is_seen);
    }
    MpiSession::abort_job(static_cast<int>(exit_code_of(error)));
  }
  Impl& parts = *impl;
  try {
    parts.start([&] {
      if (wrong) std::rethrow_exception(wrong);
      return options;
    });
    Runtime runtime{std::move(impl)};
    try {
      body(runtime);
    } catch (...) {
      const ExitCode code = parts.end.after(std::current_exception());
      return static_cast<int>(code);
    }
    return static_cast<int>(ExitCode::done);
  } catch (...) {
    return static_cast<int>(parts.end.after(std::current_exception()));
  }
}

int Runtime::run(int& argc, char**& argv, const std::function<RuntimeOptions()>& options,
                 const std::function<void(Runtime&)>& body) {
  // From the very beginning: a rank that ends as soon as it is told to could be taken for the cause.
  const KeptSignals signals;
  RuntimeOptions made;
  std::exception_ptr wrong;
  try {
    made = options();
  } catch (...) {
    wrong = std::current_exception();
  }
  return run_job(argc, argv, made, wrong, body);
}

int run_program(int& argc, char**& argv, const RuntimeOptions& options, const std::function<void(Runtime&)>& body) {
  return Runtime::run(
      argc, argv, [&] { return options; }, body);
}

}  // namespace lockstep
