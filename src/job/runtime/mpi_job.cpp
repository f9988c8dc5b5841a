#include "job/runtime/mpi_job.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

#include "core/base/excerpt.hpp"
#include "core/base/floating_point_modes.hpp"
#include "core/base/host_name.hpp"
#include "core/base/loaded_part.hpp"
#include "core/base/log_settings.hpp"
#include "core/base/open_line.hpp"
#include "core/base/stream.hpp"
#include "core/base/supervised_job.hpp"
#include "core/cluster/launch.hpp"
#include "core/cluster/tf_config.hpp"
#include "core/watch/caught_signals.hpp"
#include "core/watch/network.hpp"
#include "core/watch/question_signal.hpp"
#include "job/runtime/launcher.hpp"
#include "job/runtime/observed_stall.hpp"
#include "job/runtime/siblings.hpp"

namespace lockstep {
namespace {

std::shared_ptr<Job> meet_ranks(std::optional<int> guest, std::span<const int> world_ranks) {
  auto channel = make_mpi_channel(guest);
  auto names = plain_names(channel->size(), {world_ranks.begin(), world_ranks.end()});
  auto job = std::make_shared<Job>(std::move(channel), std::move(names));
  if (MpiSession::all_threads_may_call_mpi()) job->progress().set_threads(RequestProgress::Threads::any);
  return job;
}

/// What a guest would have to take from the program.
void require_leaves_process_alone(const RuntimeOptions& options) {
  const char* const taken = options.stop_signal != 0                                               ? "stop_signal"
                            : options.on_termination == RuntimeOptions::OnTermination::ask_to_stop ? "on_termination"
                            : options.allow_shared_gpu                                             ? "allow_shared_gpu"
                                                                                                   : nullptr;
  if (options.communicator && taken)
    throw ConfigError{fmt::format(
        "RuntimeOptions::{} beside RuntimeOptions::communicator: a guest takes no signal and sets no environment "
        "variable; expected one of the two",
        taken)};
}

/// A guest's process is ended by SIGTERM without a word, and other parts of the job may fail.
void watch_as_guest(WatchdogOptions& watching, const std::vector<int>& world_ranks) {
  watching.signals = KeptSignals::Keep::none;
  std::set<int> others;
  for (const auto& each : look_at_siblings().processes)
    if (std::ranges::find(world_ranks, each.rank) == world_ranks.end()) others.insert(each.rank);
  watching.has_lost_others = [others = std::move(others)] { return !look_at_siblings().missing(others).empty(); };
  // mpirun ends the ranks of its own node first, and takes a second for that.
  if (is_started_by_daemon()) watching.refusal = std::chrono::milliseconds{1500};
}

/// What the process has inherited. From here on it begins as lockstep needs it, and catches what a user may send to a
/// running job; a guest's is the program's to change.
InheritedState prepare_process(const RuntimeOptions& options) {
  keep_closed_streams_closed();
  InheritedState found = inherited_state();
  if (options.communicator) return found;
  reset_floating_point_modes();
  if (options.stop_signal != 0) catch_stop_signal(options.stop_signal);
  // After it: the signal may be the same.
  catch_question_signal();
  catch_cpu_limit();
  return found;
}

/// One of each rank. Those that are the same are kept once.
class DistinctTexts {
 public:
  explicit DistinctTexts(const std::vector<std::string>& texts) : texts_{texts} {
    std::ranges::sort(texts_);
    texts_.erase(std::ranges::unique(texts_).begin(), texts_.end());
    texts_.shrink_to_fit();
    index_.reserve(texts.size());
    for (const std::string& each : texts)
      index_.push_back(static_cast<std::uint32_t>(std::ranges::lower_bound(texts_, each) - texts_.begin()));
  }

  const std::string& operator[](int rank) const { return texts_[index_[static_cast<std::size_t>(rank)]]; }

 private:
  std::vector<std::string> texts_;
  std::vector<std::uint32_t> index_;  ///< by rank
};

void tell_supervisor() {
  if (!std::getenv(supervised_variable)) return;
  write_to_stderr(fmt::format("{}\n", begun_line));
}

}  // namespace

TableOnDemand<std::string> plain_names(int ranks, std::vector<int> world_ranks) {
  return {ranks, [world = std::move(world_ranks)](int rank) {
            return world.empty()
                       ? fmt::format("replica {}", rank)
                       : fmt::format("replica {} (world rank {})", rank, world[static_cast<std::size_t>(rank)]);
          }};
}

MpiJob::MpiJob(int& argc, char**& argv, const RuntimeOptions& given)
    : launch{launch_warning([](const char* name) { return std::getenv(name); })},
      inherited{prepare_process(given)},
      signals{kept_by(given)},
      ending_signals{std::in_place, kept_by(given)},
      session{argc, argv, given},
      job{meet_ranks(given.communicator, session.world_ranks())},
      end{*job, meeting().name_table()[job->rank()], given, session,
          [this](JobEnd::EndOfMpi end_of_mpi) {
            finish(end_of_mpi);
            if (end_of_mpi == JobEnd::EndOfMpi::program) return;
            session.end();
            signals.let_through();
          }},
      options{given} {
  const std::vector<int>& world = session.world_ranks();
  if (world.empty()) {
    log::set_rank(job->rank());
  } else {
    log::set_rank(world[static_cast<std::size_t>(job->rank())], world.front());
  }
  if (given.stop_signal != 0) meeting().set_stop_source(stop_signal_has_come);
}

MpiJob::~MpiJob() {
  finish(JobEnd::EndOfMpi::runtime);
}

void MpiJob::finish(JobEnd::EndOfMpi end_of_mpi) noexcept {
  if (std::exchange(is_finished, true)) return;
  end.leave();
  ending_signals.reset();
  // Instead of ending NCCL together: a GPU that has failed does not come, and the others would wait for it.
  if (end.has_failed()) job->abort();
  watchdog.reset();
  job->set_phases(nullptr);
  end.set_phases(nullptr);
  share_open_line(nullptr);
  session.started();  // a job that fails early is still being watched, with the table that goes now
  // Nobody looks at them any more.
  if (end_of_mpi == JobEnd::EndOfMpi::program) signals.let_through();
  try {
    if (options.communicator) {
      log::set_rank(-1);
    } else if (end_of_mpi == JobEnd::EndOfMpi::program) {
      session.leave_to_program();
    } else {
      session.ending(std::move(node.phases), node.ranks);
    }
  } catch (const std::exception&) {  // no memory for a watch: the job ends without
  }
}

void MpiJob::begin(const std::function<RuntimeOptions()>& make_options,
                   const std::function<std::string(const RuntimeOptions&)>& more) {
  together("options", [&] {
    require_parts_of_this_version();
    options = make_options();
    if (!(options.stall_timeout.count() > 0))
      throw ConfigError{
          fmt::format("stall timeout {}: expected a positive number of seconds", options.stall_timeout.count())};
    require_leaves_process_alone(options);
    if (!options.network.empty()) (void)address_for_heartbeats(options.network);
  });
  if (job->rank() == 0) tell_supervisor();
  if (!options.communicator) remove_names_of_mpich();
  if (job->size() == 1 && !launch.empty()) log::warning(launch);
  node = find_node(options.network, options.communicator);
  job->set_nodes(node.of_rank);
  if (node.phases) {
    job->set_phases(&*node.phases);
    end.set_phases(&*node.phases, node.heartbeats ? Heartbeats::until_line_is_known : std::chrono::milliseconds{0});
    session.claim_in(*node.phases);
    share_open_line(&node.phases->open_line());
    ending_signals->note_in(node.phases->ending_signal());
    if (!options.communicator) keep_streams_of_neighbour();
  } else {
    log::warning("this node shares no memory between processes: a rank that stops here will not be found");
  }
  names = meeting().name_table();
  together("starting to watch", [&] { watch(RuntimeOptions::OnTermination::end); });
  compare_options(more(options));
  read_cluster();
  compare_inherited_states();
}

void MpiJob::watch_to_the_end() {
  watchdog.reset();
  together("starting to watch", [&] { watch(options.on_termination); });
}

void MpiJob::watch(RuntimeOptions::OnTermination on_termination) {
  session.started();
  // Nobody would act on a signal.
  if (!node.phases) return signals.let_through();
  WatchdogOptions watching{.stall_timeout = options.stall_timeout};
  if (options.communicator) watch_as_guest(watching, session.world_ranks());
  if (options.on_stall == RuntimeOptions::OnStall::observe) watching.on_stall = warn_of_stall;
  if (on_termination == RuntimeOptions::OnTermination::ask_to_stop)
    watching.on_interrupted = [this] { meeting().request_stop(); };
  watching.launcher_waits = launcher_waits([](const char* name) { return std::getenv(name); });
  watching.on_lost = [this](const std::string& sentence, Error::ExitCode code) {
    if (loss.empty()) return;
    end.give_way();
    loss.call(sentence, code);
  };
  if (rank_from_launcher()) watching.on_orphaned = [] { end_without_launcher(Error::ExitCode::stall); };
  watchdog.emplace(
      *node.phases, names, std::move(watching),
      [this](Error::ExitCode code, Reach reach) {
        job->abort();
        if (reach == Reach::whole_job) MpiSession::abort_job(static_cast<int>(code));
        end_this_side(code, reach, node.place);
      },
      node.heartbeats.get());
}

std::vector<std::string> MpiJob::gather_texts(const std::string& text) {
  const auto [longest, unused] = channel().max({text.size(), 0});
  if (longest == 0) return std::vector<std::string>(static_cast<std::size_t>(job->size()));
  std::string mine = text;
  mine.resize(longest + 1);
  std::string all(mine.size() * static_cast<std::size_t>(job->size()), '\0');
  channel().all_gather(std::as_bytes(std::span{mine}), std::as_writable_bytes(std::span{all}));
  std::vector<std::string> texts;
  for (std::size_t first = 0; first < all.size(); first += mine.size()) texts.emplace_back(all.data() + first);
  return texts;
}

void MpiJob::compare_options(const std::string& more) {
  const auto all = gather_texts(fmt::format(
      "lockstep " LOCKSTEP_VERSION ", {}, stall timeout {} s{}{}{}, {}", more, options.stall_timeout.count(),
      options.on_stall == RuntimeOptions::OnStall::observe ? " (observed)" : "",
      options.on_failure == RuntimeOptions::OnFailure::report ? ", failures reported" : "",
      options.network.empty() ? "" : ", network " + options.network, options.program_options));
  together("comparing the options", [&] {
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank] != all[0])
        throw ConfigError{fmt::format(
            "replica {} was started with other options than replica 0: '{}' there, '{}' here; expected the same", rank,
            excerpt_from_difference(all[rank], all[0]), excerpt_from_difference(all[0], all[rank]))};
  });
}

void MpiJob::compare_inherited_states() {
  const std::vector<std::string> texts = gather_texts(to_text(inherited));
  if (job->rank() != 0) return;
  std::vector<InheritedState> states;
  for (const std::string& each : texts) states.push_back(parse_inherited_state(each));
  for (const std::string& each : doubts_about(states, node.of_rank.all(), names.all())) log::warning(each);
}

void MpiJob::read_cluster() {
  const char* const tf_config = std::getenv("TF_CONFIG");
  const bool from_environment = options.cluster_spec.empty() && tf_config && *tf_config;
  std::string text;
  together("reading the cluster spec", [&] {
    if (job->rank() != 0) return;
    if (!options.cluster_spec.empty()) text = read_cluster_spec(options.cluster_spec);
    if (from_environment) text = tf_config;
  });
  text.resize(channel().max({text.size(), 0}).front());
  channel().broadcast(std::as_writable_bytes(std::span{text}), 0);
  const auto hosts = gather_texts(host_name());

  std::optional<TfConfig> own;  // what this rank's own environment says
  together("parsing the cluster spec", [&] {
    if (!options.cluster_spec.empty()) {
      ranks = std::make_shared<const RankMap>(ClusterSpec::parse(text, options.cluster_spec.string()), job->size());
    } else if (!text.empty()) {
      ranks = std::make_shared<const RankMap>(parse_tf_config(text).cluster, job->size());
      if (from_environment) own = parse_tf_config(tf_config);
      if (own && own->cluster.canonical() != ranks->spec().canonical())
        throw ConfigError{"TF_CONFIG: its cluster is not the one that replica 0 has; expected the same on every rank"};
    } else {
      ranks = std::make_shared<const RankMap>(ClusterSpec::one_task_per_rank(job->size()), job->size());
    }
    if (text.empty()) return;  // and names no node
    ranks->require_tasks_on_one_node(hosts);
    ranks->require_tasks_where_named(hosts);
  });
  if (job->rank() == 0 && !text.empty())
    if (const std::string doubt = ranks->doubt_about_nodes(hosts); !doubt.empty()) log::warning(doubt);

  const auto task_texts =
      gather_texts(own && own->task ? fmt::format("{} {}", own->task->type, own->task->index) : std::string{});
  together("matching tasks with ranks", [&] {
    std::vector<std::optional<Task>> tasks;
    for (const std::string& each : task_texts) {
      const auto space = each.find(' ');
      tasks.push_back(each.empty() ? std::nullopt
                                   : std::optional{Task{each.substr(0, space), std::atoi(each.c_str() + space)}});
    }
    require_tasks_match_ranks(tasks, *ranks);
  });

  const auto host_of = std::make_shared<const DistinctTexts>(hosts);
  names = {job->size(), [host_of, ranks = ranks, world = session.world_ranks()](int rank) {
             const auto world_rank =
                 world.empty() ? std::nullopt : std::optional{world[static_cast<std::size_t>(rank)]};
             return ranks->describe_replica(rank, (*host_of)[rank], world_rank);
           }};
  meeting().set_names(names);
  job->set_residences({job->size(), [host_of, ranks = ranks](int rank) {
                         return Job::Residence{to_string(ranks->task_of(rank)), (*host_of)[rank]};
                       }});
  end.set_name(names[job->rank()]);
}

}  // namespace lockstep
