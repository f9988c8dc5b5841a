// What the progress of a run says, as a function of times and widths.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>

#include <catch2/catch.hpp>
#include <fcntl.h>

#include "apps/lockstep-train/reports/progress.hpp"
#include "apps/lockstep-train/reports/progress_line.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t batch = 30;

/// A run of 100 steps that evaluates 1000 samples at its end.
Observer::Step after(std::int64_t step, double seconds) {
  return {.step = step,
          .steps = 100,
          .epoch = 1,
          .epochs = 2,
          .samples = step * batch,
          .loss = 1.25,
          .evaluations_left = 1,
          .evaluation_samples = 1000,
          .seconds = seconds,
          .samples_per_second = 123.4};
}

}  // namespace

TEST_CASE("the time left is that of the recent steps, not of the first, and of the evaluations") {
  TimeLeft left;
  left.on_step(after(1, 50));  // a first step takes longer
  CHECK_FALSE(left.seconds());
  left.on_step(after(2, 50.5));
  // 98 steps of half a second, and an evaluation whose samples take a third of their time in a step.
  CHECK(left.seconds().value() == Approx(98 * 0.5 + 1000 * 0.5 / batch / 3));
  // From step 11 on, steps take 3 s: twenty of them are much more than what is remembered.
  double seconds = 50.5;
  for (std::int64_t step = 3; step <= 10; ++step) left.on_step(after(step, seconds += 0.5));
  for (std::int64_t step = 11; step <= 30; ++step) left.on_step(after(step, seconds += 3));
  CHECK(left.seconds().value() == Approx(70 * 3 + 1000 * 3. / batch / 3).epsilon(0.01));
}

TEST_CASE("a run that goes on from a checkpoint estimates from the steps that it has made itself") {
  TimeLeft left;
  left.on_step(after(71, 50));
  CHECK_FALSE(left.seconds());
  left.on_step(after(72, 50.5));
  CHECK(left.seconds().value() == Approx(28 * 0.5 + 1000 * 0.5 / batch / 3));
}

TEST_CASE("an evaluation counts at its own speed as soon as that is known, and what is done of it no more") {
  TimeLeft left;
  Observer::Step last = after(100, 10);
  left.on_step(last);
  left.on_evaluating({.step = 100, .epoch = 1, .done = 250, .samples = 1000, .seconds = 2});
  CHECK(left.seconds().value() == Approx(6));
  left.on_evaluation({.step = 100, .epoch = 1, .samples = 1000, .seconds = 9});
  CHECK(left.seconds().value() == 0);
  // Another run, of two evaluations: the first tells of the second.
  TimeLeft two;
  last.evaluations_left = 2;
  two.on_step(last);
  two.on_evaluation({.step = 100, .epoch = 1, .samples = 1000, .seconds = 9});
  CHECK(two.seconds().value() == Approx(9));
}

TEST_CASE("a line has what its width has room for, the less important left out") {
  const Observer::Step report = after(42, 7);
  CHECK(step_line(report, 61, 200) == "step 42/100  epoch 1/2  loss 1.2500  123 samples/s  1:01 left");
  Observer::Step first = report;
  first.step = 1;
  first.loss = -std::numeric_limits<double>::quiet_NaN();
  CHECK(step_line(first, {}, 200) == "step 1/100  epoch 1/2  loss nan  123 samples/s");
  Observer::Parts parts{.seconds = 10, .replicas = {{.waiting = 2}}};
  CHECK_FALSE(waiting_share(parts));  // it has nobody to wait for
  parts.replicas.push_back({.waiting = 1});
  CHECK(step_line(report, 61, 200, waiting_share(parts)) ==
        "step 42/100  epoch 1/2  loss 1.2500  123 samples/s  15% waiting  1:01 left");
  CHECK(step_json(report, {}, 0.15) ==
        R"({"kind":"step","step":42,"steps":100,"epoch":1,"epochs":2,"loss":1.25,"samples_per_second":123.4,)"
        R"("waiting":0.15,"seconds_left":null})");
  CHECK(step_line(report, 61, 60) == "step 42/100  epoch 1/2  loss 1.2500  1:01 left");
  CHECK(step_line(report, 61, 35) == "step 42/100  loss 1.2500  1:01 left");
  CHECK(step_line(report, 61, 34) == "step 42/100  loss 1.2500");
  CHECK(step_line(report, 61, 12) == "step 42/100");
  CHECK(step_line(report, 61, 9) == "42/100");
  CHECK(step_line(report, 61, 4) == "step");
  CHECK(step_line(report, 61, 3).empty());
  const Observer::Evaluation::Progress half{.step = 42, .epoch = 1, .done = 500, .samples = 1000, .seconds = 1};
  CHECK(evaluating_line(half, 3600, 80) == "test  step 42  epoch 1  50%  1:00:00 left");
  Observer::Evaluation done{
      .step = 42, .epoch = 1, .samples = 9, .loss = 2, .bits_per_byte = 3, .accuracy = 0.5, .seconds = 4};
  CHECK(evaluation_line(done, 80) == "test  step 42  epoch 1  loss 2.0000  3.0000 bits/byte  accuracy 50.00%  4.0 s");
  done.bits_per_byte = {};
  CHECK(evaluation_line(done, 80) == "test  step 42  epoch 1  loss 2.0000  accuracy 50.00%  4.0 s");
  done.r_squared = 0.75;
  done.mean_absolute_error = 12.5;
  CHECK(evaluation_line(done, 80) == "test  step 42  epoch 1  loss 2.0000  R2 0.7500, mean error 12.5  4.0 s");
  for (std::size_t width = 0; width < 80; ++width) {
    CAPTURE(width);
    CHECK(step_line(report, 61, width).size() <= width);
    CHECK(evaluating_line(half, 61, width).size() <= width);
    CHECK(evaluation_line(done, width).size() <= width);
  }
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

TEST_CASE("the line that stays above an evaluation is that of the step before it") {
  const File file{std::tmpfile(), &std::fclose};
  REQUIRE(file);
  Progress progress{::fileno(file.get()), ProgressStyle::one_line};
  progress.on_step(after(1, 1));
  progress.on_step(after(2, 2));  // too soon for another line
  progress.on_evaluation({.step = 2, .epoch = 1, .samples = 1000, .loss = 2, .seconds = 4});
  std::string text(1000, '\0');
  std::rewind(file.get());
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  CHECK_THAT(text, Catch::StartsWith("\rstep 1/100  ") && Catch::Contains("\rstep 2/100  ") &&
                       Catch::EndsWith("test  step 2  epoch 1  loss 2.0000  accuracy 0.00%  4.0 s\x1b[K\n"));
}

TEST_CASE("progress is one line on a terminal that can redraw it, and lines elsewhere") {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(terminal >= 0);
  const File screen{::fdopen(terminal, "w"), &std::fclose}, file{std::tmpfile(), &std::fclose};
  const char* const before = std::getenv("TERM");
  const std::string kept = before ? before : "";
  ::setenv("TERM", "xterm", 1);
  CHECK(progress_style(::fileno(screen.get())) == ProgressStyle::one_line);
  CHECK(progress_style(::fileno(file.get())) == ProgressStyle::lines);
  ::setenv("TERM", "dumb", 1);
  CHECK(progress_style(::fileno(screen.get())) == ProgressStyle::lines);
  before ? ::setenv("TERM", kept.c_str(), 1) : ::unsetenv("TERM");
}
