// Plays a random program on one rank.
#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/control/meeting_point.hpp"
#include "job/sim/virtual_time.hpp"
#include "sim_program.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"
#include "tf/feed/distributed_input.hpp"

namespace lockstep::test {
namespace {

using Kind = Operation::Kind;

/// What replica `rank` brings for element `i` of an operation: small, so that sums are exact in every type.
std::int64_t brought(const Operation& operation, int rank, std::int64_t i) {
  return (operation.id * 7 + rank * 5 + i * 3) % 11;
}

template <class T>
Tensor tensor_of(std::int64_t count, const std::function<std::int64_t(std::int64_t)>& element) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(element(i)));
  return Tensor::from(values, {count});
}

Tensor make_tensor(DType dtype, std::int64_t count, const std::function<std::int64_t(std::int64_t)>& element) {
  switch (dtype) {
    case DType::f64: return tensor_of<double>(count, element);
    case DType::i32: return tensor_of<std::int32_t>(count, element);
    case DType::i64: return tensor_of<std::int64_t>(count, element);
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::u8: break;
  }
  return tensor_of<float>(count, element);
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.view().data(), a.view().data() + a.view().bytes(), b.view().data());
}

class Player {
 public:
  Player(const Program& program, Played& played, Strategy& strategy, int rank)
      : program_{program}, played_{played}, strategy_{strategy}, rank_{rank} {}

  void play() {
    variable_.emplace(strategy_.create_variable({.name = "sum", .aggregation = Variable::Aggregation::sum},
                                                [] { return Tensor::zeros(DType::f32, {3}); }));
    strategy_.seal();
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      const bool here = is_culprit() && program_.place == static_cast<int>(i);
      if (here && program_.mischief == Mischief::throw_outside) throw Oops{"outside of every run"};
      if (here && program_.mischief == Mischief::early_exit) return;
      if (here && program_.mischief == Mischief::extra_run) strategy_.run([](ReplicaContext&) {});
      if (here && program_.mischief == Mischief::skip_run) continue;
      const Step& step = program_.steps[i];
      if (step.runs) {
        strategy_.run([&](ReplicaContext& context) { perform_all(step.operations, &context); });
      } else {
        perform_all(step.operations, nullptr);
      }
    }
    (void)strategy_.same_on_all(std::string{"the end"});
  }

  /// What a trainer does that caught a verdict: from here on all are in step again.
  void recover() {
    expect(!Strategy::has_current(), "a context was left behind");
    expect(inside(strategy_).group().meeting().depth() == 0, "a run was left behind");
    strategy_.rebroadcast();
    expect(strategy_.reduce(ReduceOp::sum, PerReplica<int>{rank_}) == triangle(), "the sum after the failure");
    strategy_.run([&](ReplicaContext& context) {
      expect(context.all_reduce(ReduceOp::sum, rank_) == triangle(), "the sum in the step after the failure");
    });
    played_.recovered[static_cast<std::size_t>(rank_)] = true;
  }

 private:
  bool is_culprit() const { return rank_ == program_.culprit; }
  bool is_place(const Operation& operation) const { return is_culprit() && operation.id == program_.place; }
  bool does(const Operation& operation, Mischief mischief) const {
    return is_place(operation) && program_.mischief == mischief;
  }
  int triangle() const { return program_.ranks * (program_.ranks - 1) / 2; }

  void expect(bool right, const std::string& what) {
    if (!right) played_.problems.push_back(fmt::format("replica {}: {}", rank_, what));
  }

  /// From where ranks do different things, sums may be of different things too, until that is found out.
  void expect_exact(const Operation& operation, const Tensor& got, const Tensor& expected) {
    const bool in_step = program_.place < 0 || operation.id < program_.place || program_.mischief == Mischief::late ||
                         program_.mischief == Mischief::local_error;
    if (in_step && !by_step()) expect(same(got, expected), fmt::format("the result of operation {}", operation.id));
  }
  bool by_step() const {
    return program_.mischief == Mischief::extra_run || program_.mischief == Mischief::skip_run ||
           program_.mischief == Mischief::early_exit || program_.mischief == Mischief::throw_outside;
  }

  /// Results that are not waited for yet, and the checks of them.
  using Waits = std::vector<std::function<void()>>;

  void perform_all(const std::vector<Operation>& operations, ReplicaContext* context) {
    Waits waits;
    struct Restore {
      Waits*& place;
      Waits* outer;
      ~Restore() { place = outer; }
    } const restore{waits_, std::exchange(waits_, &waits)};
    perform_each(operations, context);
    for (const auto& wait : waits) wait();
  }

  void perform_each(const std::vector<Operation>& operations, ReplicaContext* context) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const Operation& operation = operations[i];
      if (does(operation, Mischief::throw_before)) throw Oops{"before"};
      if (does(operation, Mischief::throw_long)) throw Oops{std::string(500, 'x')};
      if (does(operation, Mischief::early_return)) return;
      if (does(operation, Mischief::skip)) continue;
      if (does(operation, Mischief::late)) sim::sleep(2 * stall_timeout);
      if (does(operation, Mischief::local_error)) err_locally(context);
      if (does(operation, Mischief::extra)) do_extra(context);
      if (does(operation, Mischief::swap)) {
        perform(operations[i + 1], context);
        perform(operation, context);
        ++i;
        continue;
      }
      perform(operation, context);
      if (does(operation, Mischief::throw_after)) throw Oops{"after"};
    }
  }

  void err_locally(ReplicaContext* context) {
    bool caught = false;
    try {
      if (context) {
        (void)strategy_.reduce(ReduceOp::sum, PerReplica<int>{1});
      } else {
        (void)strategy_.reduce(ReduceOp::mean, PerReplica<int>{1});
      }
    } catch (const Error&) {
      caught = true;
    }
    expect(caught, "a local mistake was not found");
  }

  void do_extra(ReplicaContext* context) {
    if (context) {
      context->merge_call([](Strategy&) {});
    } else {
      (void)strategy_.same_on_all(1);
    }
  }

  void perform(const Operation& operation, ReplicaContext* context) {
    if (rank_ != program_.swallower || !context) return perform_honestly(operation, context);
    try {
      perform_honestly(operation, context);
    } catch (const Error&) {
    }
  }

  void perform_honestly(const Operation& plain, ReplicaContext* context) {
    const Operation operation = does(plain, Mischief::differ) ? twisted(plain) : plain;
    const auto mine = [&] {
      return make_tensor(operation.dtype, operation.count,
                         [&](std::int64_t i) { return brought(operation, rank_, i); });
    };
    const auto inside = [&] {
      if (does(operation, Mischief::throw_inside)) throw Oops{"inside"};
    };
    switch (operation.kind) {
      case Kind::merge: {
        if (does(operation, Mischief::differ)) return context->merge_call([](Strategy&, PerReplica<int>) {}, args(1));
        return context->merge_call([&](Strategy&) { inside(); });
      }
      case Kind::merge_reduce: {
        const Tensor sum = context->merge_call(
            [&](Strategy& strategy, const PerReplica<Tensor>& value) {
              inside();
              return StrategyExtended{strategy}.reduce_to(op_of(operation), value);
            },
            args(mine()));
        return expect_exact(operation, sum, sum_of(operation));
      }
      case Kind::reduce_to_one: {
        const auto sum = context->merge_call(
            [&](Strategy& strategy, const PerReplica<Tensor>& value) {
              inside();
              return PerReplica{StrategyExtended{strategy}.reduce_to(ReduceOp::sum, value,
                                                                     StrategyExtended::OneReplica{operation.root})};
            },
            args(mine()));
        if (sum) expect_exact(operation, *sum, sum_of(operation));
        return;
      }
      case Kind::broadcast: {
        const Tensor of_first = context->merge_call(
            [&](Strategy& strategy, const PerReplica<Tensor>& value) {
              inside();
              return StrategyExtended{strategy}.broadcast_to(value);
            },
            args(mine()));
        return expect_exact(operation, of_first, brought_by(operation, 0));
      }
      case Kind::nested:
        return context->merge_call([&](Strategy& strategy) {
          inside();
          strategy.run([&](ReplicaContext& inner) { perform_all(operation.inner, &inner); });
        });
      case Kind::all_reduce: {
        const auto sums = context->all_reduce(op_of(operation), std::pair{mine(), std::vector<float>{1, 2}});
        if (op_of(operation) == ReduceOp::mean) return;
        return expect_exact(operation, sums.first, sum_of(operation));
      }
      case Kind::all_reduce_async: {
        const auto pending = std::make_shared<ReplicaContext::PendingReduction<Tensor>>(
            context->all_reduce_async(op_of(operation), mine()));
        const auto wait = [this, operation, pending] {
          const Tensor sum = pending->wait();
          if (op_of(operation) == ReduceOp::sum) expect_exact(operation, sum, sum_of(operation));
        };
        (operation.id + rank_) % 3 == 0 ? wait() : static_cast<void>(waits_->emplace_back(wait));
        return;
      }
      case Kind::assign: {
        variable_->assign(make_tensor(DType::f32, 3, [&](std::int64_t i) { return brought(operation, rank_, i); }));
        Operation three = operation;
        three.dtype = DType::f32;
        three.count = 3;
        return expect_exact(operation, Tensor::on_host(variable_->local()), sum_of(three));
      }
      case Kind::reduce:
        return expect_exact(operation, strategy_.reduce(op_of(operation), PerReplica<Tensor>{mine()}),
                            sum_of(operation));
      case Kind::same_on_all: {
        const int value = does(operation, Mischief::differ) ? 5 : 4;
        return expect(strategy_.same_on_all(value).value() == value, "same_on_all");
      }
      case Kind::create: {
        const bool other_name = does(operation, Mischief::differ) && program_.twist % 2 == 0;
        strategy_.create_variable({.name = fmt::format("v{}{}", operation.id, other_name ? "x" : "")}, mine);
        return strategy_.seal();
      }
      case Kind::rebroadcast: return strategy_.rebroadcast();
      case Kind::input: {
        const bool some = operation.id % 2 == 0;
        // Ranks without input have to know what that of the root looks like.
        using Numbers = std::vector<std::int64_t>;
        const bool own = some && rank_ == operation.root;
        const auto offer = [&] {
          return detail::InputOffer{.any = own,
                                    .what = lockstep::describe(mine().view()),
                                    .outline = own ? Numbers{operation.id, 7} : Numbers{},
                                    .lacks_outline = !own};
        };
        detail::InputAnswer answer = detail::agree_on_input(strategy_, offer, Here::current());
        answer.outline.push_back(answer.goes_on);
        const Numbers expected = some && program_.ranks > 1 ? Numbers{operation.id, 7, 1} : Numbers{some};
        const auto numbers = [](const Numbers& of) { return Tensor::from(of, {std::ssize(of)}); };
        return expect_exact(operation, numbers(answer.outline), numbers(expected));
      }
    }
  }

  /// As the culprit does it.
  Operation twisted(Operation operation) const {
    switch (program_.twist % 3) {
      case 0: operation.count += 1; break;
      case 1: operation.dtype = operation.dtype == DType::f32 ? DType::f64 : DType::f32; break;
      case 2:
        // What there is besides shape and type: the root, or the operation.
        if (operation.kind == Kind::reduce_to_one) {
          operation.root = (operation.root + 1) % program_.ranks;
        } else if (!has_op(operation)) {
          operation.count += 2;
        }
        break;
    }
    return operation;
  }

  static bool has_op(const Operation& operation) {
    const bool may_differ = operation.dtype == DType::f32 || operation.dtype == DType::f64;
    return may_differ && (operation.kind == Kind::merge_reduce || operation.kind == Kind::all_reduce ||
                          operation.kind == Kind::all_reduce_async || operation.kind == Kind::reduce);
  }
  ReduceOp op_of(const Operation& operation) const {
    const bool other = does(operation, Mischief::differ) && program_.twist % 3 == 2 && has_op(operation);
    return other ? ReduceOp::mean : ReduceOp::sum;
  }

  Tensor brought_by(const Operation& operation, int rank) const {
    return make_tensor(operation.dtype, operation.count, [&](std::int64_t i) { return brought(operation, rank, i); });
  }
  Tensor sum_of(const Operation& operation) const {
    return make_tensor(operation.dtype, operation.count, [&](std::int64_t i) {
      std::int64_t sum = 0;
      for (int rank = 0; rank < program_.ranks; ++rank) sum += brought(operation, rank, i);
      return sum;
    });
  }

  const Program& program_;
  Played& played_;
  Strategy& strategy_;
  int rank_;
  std::optional<MirroredVariable> variable_;
  Waits* waits_ = nullptr;
};

/// Whether the ranks have a verdict in common and are all still there.
bool may_recover(const Program& program) {
  return program.mischief != Mischief::early_exit && program.mischief != Mischief::throw_outside;
}

}  // namespace

Played play(const Program& program, std::function<void(std::string_view)> trace) {
  Played played;
  played.of_rank.resize(static_cast<std::size_t>(program.ranks));
  played.ended.resize(played.of_rank.size());
  played.recovered.resize(played.of_rank.size());
  try {
    sim::run({.ranks = program.ranks,
              .seed = program.seed,
              .faults = program.faults,
              .stall_timeout = stall_timeout,
              .trace = std::move(trace),
              .report = [](std::string_view) {}},
             [&](Strategy& strategy, int rank) {
               Player player{program, played, strategy, rank};
               const auto index = static_cast<std::size_t>(rank);
               try {
                 try {
                   player.play();
                 } catch (const std::exception&) {
                   played.of_rank[index] = std::current_exception();
                   if (!may_recover(program)) throw;
                   player.recover();
                 }
               } catch (const std::exception&) {
                 played.ended[index] = true;
                 throw;
               }
               played.ended[index] = true;
             });
  } catch (...) {
    played.thrown = std::current_exception();
  }
  return played;
}

}  // namespace lockstep::test
