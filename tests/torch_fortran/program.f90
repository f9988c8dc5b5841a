! Models of a Fortran program: `program RANKS` compares what they learn with the bridge in C++, bit by bit, on so many
! ranks; `program MODE` ends the job.
program torch_fortran_program
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_float, c_int, c_int64_t, c_null_char
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use mpi_f08
  use lockstep
  use lockstep_torch
  use checks
  implicit none
  integer, parameter :: rows = 12
  character(len=32), parameter :: ways(2, 6) = reshape([character(len=32) :: 'adamw', 'mse', 'sgd', 'l1', 'adam', &
    'smooth_l1', 'rmsprop', 'cross_entropy', 'adamw', 'binary_cross_entropy_with_logits', 'sgd', 'script'], [2, 6])

  ! bridge.h of tests/torch_c.
  interface
    subroutine bridge_make_folder(path) bind(C)
      import
      character(kind=c_char), intent(inout) :: path(*)
    end subroutine
    subroutine bridge_remove_folder(path) bind(C)
      import
      character(kind=c_char), intent(in) :: path(*)
    end subroutine
    integer(c_int64_t) function bridge_train(communicator, file, optimizer, loss_name, steps, shards, loss) bind(C)
      import
      integer(c_int), value :: communicator
      character(kind=c_char), intent(in) :: file(*), optimizer(*), loss_name(*)
      integer(c_int), value :: steps, shards
      real(c_double), intent(inout) :: loss
    end function
    subroutine bridge_infer(file, step, count, outputs) bind(C)
      import
      character(kind=c_char), intent(in) :: file(*)
      integer(c_int), value :: step, count
      real(c_float), intent(inout) :: outputs(2, *)
    end subroutine
  end interface

  type(lockstep_group) :: all
  character(len=64) :: folder
  character(len=16) :: argument
  integer :: expected, status

  call get_command_argument(1, argument)
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, test_rank)
  call MPI_Comm_size(MPI_COMM_WORLD, test_ranks)
  folder = '/tmp/lockstep-torch-fortran-XXXXXX'//c_null_char
  if (test_rank == 0) call bridge_make_folder(folder)
  call MPI_Bcast(folder, len(folder), MPI_CHARACTER, 0, MPI_COMM_WORLD)
  folder = folder(:index(folder, c_null_char) - 1)
  call lockstep_group_create(all, MPI_COMM_WORLD)
  read (argument, *, iostat=status) expected
  if (status /= 0) call end_job()
  call check(test_ranks == expected, 'the number of ranks')

  call test_training()
  call test_shards()
  call test_options()
  call test_inference()
  call test_lists()
  call test_files()
  call test_arrays()
  call test_misuse()
  call lockstep_agree(all, 'the end')
  if (test_rank == 0) call bridge_remove_folder(trim(folder)//c_null_char)
  call lockstep_group_free(all)
  call MPI_Finalize()
  if (test_rank == 0) print '(a)', 'all checks passed'

contains

  function in_folder(name)
    character(len=*), intent(in) :: name
    character(len=:), allocatable :: in_folder
    in_folder = trim(folder)//'/'//name
  end function

  ! As the bridge has them: numbers that differ in each step and row, and a rank's rows, of which rank 0 has none in
  ! step 2. All are the same in real32.
  elemental real(real64) function number(step, row, column)
    integer, intent(in) :: step, row, column
    number = mod(31*step + 7*row + 3*column, 17)/8.0_real64 - 1
  end function

  subroutine make_rows(step, first, x, y)
    integer, intent(in) :: step, first
    real(real64), intent(out) :: x(:, :), y(:, :)
    integer :: i, row
    do row = 1, size(x, 2)
      x(:, row) = number(step, first + row - 1, [(i, i=0, 2)])
      y(:, row) = number(step, first + row - 1, [(i, i=5, 6)])
    end do
  end subroutine

  integer function own_rows(step)
    integer, intent(in) :: step
    own_rows = merge(0, 2*(test_rank + 1), test_rank == 0 .and. step == 2)
  end function

  type(lockstep_model_options) function options_of(optimizer, loss) result(options)
    character(len=*), intent(in) :: optimizer, loss
    options = lockstep_model_options(optimizer=optimizer, loss=loss, learning_rate=0.01_real64)
    if (optimizer == 'sgd') options%momentum = 0.5_real64
    if (optimizer == 'sgd') options%clip_norm = 0.05_real64
    if (optimizer == 'adam') options%weight_decay = 0.1_real64
  end function

  ! Steps with the loss of that name, with arrays of several kinds and layouts. Returns the last step's loss.
  real(real64) function train(model, first, steps, name)
    type(lockstep_model), intent(in) :: model
    integer, intent(in) :: first, steps
    character(len=*), intent(in) :: name
    real(real64) :: x(3, rows), y(2, rows), apart(2, 5, 2*rows)
    integer :: step, n
    do step = first, first + steps - 1
      n = own_rows(step)
      call make_rows(step, test_rank*(test_rank + 1), x(:, :n), y(:, :n))
      if (name == 'binary_cross_entropy_with_logits') y = merge(1, 0, y > 0)
      apart = -99
      apart(2, 3:1:-1, 2*n:2:-2) = x(:, :n)
      if (name == 'cross_entropy' .and. mod(step, 2) == 0) then
        call lockstep_model_train(model, x(:, :n), merge(1_int32, 0_int32, y(1, :n) > 0), train)
      else if (name == 'cross_entropy') then
        call lockstep_model_train(model, x(:, :n), merge(1_int64, 0_int64, y(1, :n) > 0), train)
      else if (mod(step, 3) == 0) then
        call lockstep_model_train(model, apart(2, 3:1:-1, 2*n:2:-2), y(:, :n), train)
      else if (mod(step, 3) == 1) then
        call lockstep_model_train(model, x(:, :n), real(y(:, :n), real32), train, at='program.f90:train')
      else
        call lockstep_model_train(model, real(x(:, :n), real32), y(:, :n), loss=train)
      end if
    end do
  end function

  integer(int64) function digest_of(model)
    type(lockstep_model), intent(in) :: model
    digest_of = 0
    call lockstep_model_digest(model, digest_of)
  end function

  integer(int64) function digest_in_cpp(optimizer, loss_name, steps, shards, loss)
    character(len=*), intent(in) :: optimizer, loss_name
    integer, intent(in) :: steps, shards
    real(real64), intent(inout) :: loss
    digest_in_cpp = bridge_train(MPI_COMM_WORLD%MPI_VAL, in_folder('net.pt')//c_null_char, &
      trim(optimizer)//c_null_char, trim(loss_name)//c_null_char, steps, shards, loss)
  end function

  subroutine test_training()
    type(lockstep_model) :: model
    integer :: i
    integer(int64) :: digest
    real(real64) :: loss, loss_in_cpp
    do i = 1, size(ways, 2)
      call lockstep_model_load(model, all, in_folder('net.pt'), options_of(ways(1, i), ways(2, i)))
      digest = digest_in_cpp(ways(1, i), ways(2, i), 5, 0, loss_in_cpp)
      loss = train(model, 0, 5, ways(2, i))
      call check(transfer(loss, digest) == transfer(loss_in_cpp, digest), 'the loss of '//ways(2, i))
      call check(digest_of(model) == digest, 'the weights of '//ways(1, i))
      ! On one rank, nobody has rows in step 2.
      call check(lockstep_model_steps(model) == merge(4, 5, test_ranks == 1), 'the number of steps')
      call lockstep_model_free(model)
      call check(lockstep_model_steps(model) == -1, 'no model')
    end do
  end subroutine

  subroutine test_shards()
    type(lockstep_model) :: model, alone
    type(lockstep_group) :: self
    type(lockstep_model_options) :: options
    real(real64) :: x(3, rows), y(2, rows), loss, loss_in_cpp
    integer, parameter :: shards = 4
    integer :: first, last, step
    options = options_of('adamw', 'mse')
    options%shards = shards
    call lockstep_group_create(self, MPI_COMM_SELF)
    call lockstep_model_load(model, all, in_folder('net.pt'), options)
    call lockstep_model_load(alone, self, in_folder('net.pt'), options)
    call lockstep_model_shards(model, first, last)
    call check(first == merge(test_rank + 1, test_rank*shards/test_ranks + 1, test_ranks == 3), 'the first shard')
    call check(last == merge(shards, merge(test_rank + 1, (test_rank + 1)*shards/test_ranks, test_ranks == 3), &
      test_rank == test_ranks - 1), 'the last shard')
    first = rows/shards*(first - 1) + 1
    last = rows/shards*last
    do step = 0, 3
      call make_rows(step, 0, x, y)
      call lockstep_model_train(model, x(:, first:last), y(:, first:last), loss)
      call lockstep_model_train(alone, x, y)
    end do
    call check(digest_of(model) == digest_in_cpp('adamw', 'mse', 4, shards, loss_in_cpp), 'the weights of shards')
    call check(transfer(loss, 1_int64) == transfer(loss_in_cpp, 1_int64), 'the loss of shards')
    call check(digest_of(alone) == digest_of(model), 'the weights of one rank')
    call lockstep_model_free(alone)
    call lockstep_group_free(self)
    call lockstep_model_free(model)
  end subroutine

  ! The defaults are those of C, which compares the options of all ranks.
  subroutine test_options()
    type(lockstep_model) :: model, other
    type(lockstep_model_options) :: options
    namelist /surrogate/ options
    character(len=64) :: text = "&surrogate options%optimizer='sgd', options%learning_rate=0.25 /"
    if (test_rank == 0) then
      call lockstep_model_load(model, all, in_folder('net.pt'))
    else
      call lockstep_model_load(model, all, in_folder('net.pt'), options)
    end if
    call lockstep_model_free(model)
    read (text, nml=surrogate)
    call lockstep_model_load(model, all, in_folder('net.pt'), options)
    options%learning_rate = 0.5_real64
    call lockstep_model_load(other, all, in_folder('net.pt'), options)
    call lockstep_model_set_learning_rate(other, 0.25_real64)
    call check(train(model, 0, 2, 'mse') > 0, 'a loss')
    call check(train(other, 0, 2, 'mse') > 0, 'a loss')
    call check(digest_of(model) == digest_of(other), 'the same learning rate')
    call lockstep_model_free(model)
    call lockstep_model_free(other)
  end subroutine

  subroutine test_inference()
    type(lockstep_model) :: model
    real(real64) :: x(3, 3), y(2, 3), wide(4, 6)
    real(real32) :: found(2, 3), in_cpp(2, 3)
    call lockstep_model_load(model, all, in_folder('drop.pt'))
    call check(train(model, 0, 2, 'mse') > 0, 'a loss')
    call lockstep_model_save(model, in_folder('trained.pt'))
    call bridge_infer(in_folder('trained.pt')//c_null_char, 7, 3, in_cpp)
    call make_rows(7, 0, x, y)
    call lockstep_model_infer(model, x, found)
    call check(maxval(abs(found - in_cpp)) <= 0, 'the outputs of C++')
    wide = -99
    call lockstep_model_infer(model, real(x, real32), wide(4:2:-2, ::2))
    call check(maxval(abs(wide(4:2:-2, ::2) - in_cpp)) <= 0, 'outputs in a section')
    call check(all_are(wide(1:3:2, :), -99) .and. all_are(wide(:, 2::2), -99), 'what is not in the section')
    call lockstep_model_free(model)
  end subroutine

  logical function all_are(values, value)
    real(real64), intent(in) :: values(:, :)
    integer, intent(in) :: value
    all_are = minval(nint(values)) == value .and. maxval(nint(values)) == value
  end function

  ! Two inputs, one of integers, and two outputs, whose losses are added up. Each rank has as many rows.
  subroutine test_lists()
    type(lockstep_model) :: model
    real(real64), target :: x(3, 4), one(1, 4), targets(1, 4)
    real(real32), target :: two(1, 8)
    integer(int64), target :: shift(1, 4)
    real(real64) :: loss, by_hand, y(2, 4)
    call lockstep_model_load(model, all, in_folder('pair.pt'), options_of('sgd', 'mse'))
    call make_rows(3, 0, x, y)
    shift(1, :) = [1, -2, 3, 0]
    targets(1, :) = y(2, :)
    call lockstep_model_infer(model, [lockstep_array(x), lockstep_array(shift)], &
      [lockstep_array(one), lockstep_array(two(:, 7:1:-2))])
    call check(maxval(abs(two(1, 7:1:-2) - one(1, :) - shift(1, :))) < 1e-5, 'both outputs')
    by_hand = sum((one - targets)**2)/4 + sum((two(:, 7:1:-2) - y(:1, :))**2)/4
    call lockstep_model_train(model, [lockstep_array(x), lockstep_array(shift)], &
      [lockstep_array(targets), lockstep_array(y(:1, :))], loss)
    call check(abs(loss - by_hand) < 1e-5, 'the sum of both losses')
    call check(lockstep_model_steps(model) == 1, 'a step')
    call lockstep_model_free(model)
  end subroutine

  subroutine test_files()
    type(lockstep_model) :: model, other
    type(lockstep_model_options) :: options
    integer(int64) :: digest, steps
    options = options_of('adamw', 'mse')
    options%seed = 9
    call lockstep_model_load(model, all, in_folder('drop.pt'), options)
    steps = 5
    call lockstep_model_restore(model, in_folder('checkpoints'), steps)
    call check(steps == -1, 'no checkpoint')
    call check(train(model, 3, 3, 'mse') > 0, 'a loss')
    call lockstep_model_checkpoint(model, in_folder('checkpoints'))
    call lockstep_model_save(model, in_folder('trained.safetensors'))
    digest = digest_of(model)
    ! Another seed drops others.
    options%seed = 10
    call lockstep_model_load(other, all, in_folder('drop.pt'), options)
    call check(train(other, 3, 3, 'mse') > 0, 'a loss')
    call check(digest_of(other) /= digest, 'the bits of another seed')
    call lockstep_model_restore(other, in_folder('trained.safetensors'))
    call check(digest_of(other) == digest, 'the weights of the file')
    call lockstep_model_free(other)
    call check(train(model, 6, 2, 'mse') > 0, 'a loss')
    digest = digest_of(model)
    call lockstep_model_free(model)
    options%seed = 9
    call lockstep_model_load(model, all, in_folder('drop.pt'), options)
    call lockstep_model_restore(model, in_folder('checkpoints'), steps)
    call check(steps == 3 .and. lockstep_model_steps(model) == 3, 'the steps of the checkpoint')
    call check(train(model, 6, 2, 'mse') > 0, 'a loss')
    call check(digest_of(model) == digest, 'the same bits after a checkpoint')
    call lockstep_model_free(model)
  end subroutine

  logical function is_last()
    is_last = test_rank == test_ranks - 1
  end function

  ! A call that has failed on rank `culprit` by that code, of which the others have heard.
  subroutine check_fails_on(culprit, stat, errmsg, code, text)
    integer, intent(in) :: culprit, stat, code
    character(len=*), intent(in) :: errmsg, text
    character(len=16) :: named
    call check_refused(stat, errmsg, merge(code, lockstep_peer_failed, test_rank == culprit), text)
    write (named, '(a, i0, a)') 'replica ', culprit, ' ('
    if (test_rank /= culprit) call check(index(errmsg, trim(named)) == 1, trim(named)//' in '//trim(errmsg))
  end subroutine

  ! Arrays that a call refuses, on all ranks or on one.
  subroutine test_arrays()
    type(lockstep_model) :: model
    real(real64) :: x(3, 4), y(2, 4), many(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4), loss
    real(real64), allocatable :: none(:, :)
    character(len=256) :: errmsg
    integer(int64) :: digest
    integer :: stat
    call lockstep_model_load(model, all, in_folder('net.pt'))
    digest = digest_of(model)
    call make_rows(0, 0, x, y)
    many = 1
    loss = 77
    call lockstep_model_train(model, [lockstep_array ::], [lockstep_array(y)], loss, stat, errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'there are 0 inputs')
    call lockstep_model_train(model, x, y(:, :3), loss, stat, errmsg, at='program.f90:7')
    call check_refused(stat, errmsg, lockstep_failure, &
      'lockstep_model_train (program.f90:7): targets[0] has 3 rows, and inputs[0] has 4')
    call lockstep_model_train(model, 1.0_real64, y, loss, stat, errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'inputs[0] has 0 dimensions')
    call lockstep_model_train(model, many, y, loss, stat, errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'inputs[0] has 15 dimensions')
    ! What one rank passes fails on all, and nothing has changed.
    call lockstep_model_train(model, x(:merge(2, 3, is_last()), :), y, loss, stat, errmsg)
    call check_fails_on(test_ranks - 1, stat, errmsg, lockstep_failure, 'LibTorch: mat1 and mat2 shapes cannot be')
    if (.not. is_last()) allocate (none, source=x)
    call lockstep_model_train(model, none, y, loss, stat, errmsg, at='program.f90:8')
    call check_fails_on(test_ranks - 1, stat, errmsg, lockstep_failure, &
      'lockstep_model_train (program.f90:8): inputs[0] is not allocated; expected one that is')
    call of_assumed_size(model, x)
    call check(digest_of(model) == digest, 'the weights as before')
    call check(nint(loss) == 77 .and. lockstep_model_steps(model) == 0, 'no step')
    ! On this rank alone.
    if (is_last()) then
      call lockstep_model_infer(model, x, none, stat, errmsg)
      call check_refused(stat, errmsg, lockstep_failure, 'lockstep_model_infer: outputs[0] is not allocated')
      call lockstep_model_infer(model, x, x(:2, :3), stat, errmsg)
      call check_refused(stat, errmsg, lockstep_failure, 'outputs[0] has 3 rows')
      call lockstep_model_infer(model, x, x, stat, errmsg)
      call check_refused(stat, errmsg, lockstep_failure, 'outputs[0] is f64[4, 3]')
    end if
    errmsg = 'as before'
    call lockstep_model_train(model, x, y, loss, stat, errmsg)
    call check(stat == lockstep_ok .and. errmsg == 'as before', 'a step')
    call check(digest_of(model) /= digest, 'other weights')
    call lockstep_model_free(model)
  end subroutine

  subroutine of_assumed_size(model, x)
    type(lockstep_model), intent(in) :: model
    real(real64), intent(in) :: x(3, *)
    character(len=256) :: errmsg
    integer :: stat
    call lockstep_model_train(model, [lockstep_array(x(:, 1:4)), lockstep_array(x)], [lockstep_array ::], stat=stat, &
      errmsg=errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'inputs[1] has no last extent')
  end subroutine

  ! Files, options, models and groups.
  subroutine test_misuse()
    type(lockstep_model) :: model, copy, none
    type(lockstep_group) :: no_group
    type(lockstep_model_options) :: options
    real(real64) :: x(3, 4), y(2, 4)
    real(real64), allocatable :: unallocated(:, :)
    character(len=256) :: errmsg
    integer(int64) :: digest
    integer :: stat, first, last
    call make_rows(0, 0, x, y)
    call lockstep_model_load(model, no_group, in_folder('net.pt'), stat=stat, errmsg=errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'the group is NULL')
    call lockstep_model_load(model, all, in_folder('none.pt'), stat=stat, errmsg=errmsg)
    call check_fails_on(0, stat, errmsg, lockstep_checkpoint, 'none.pt')
    call lockstep_model_load(model, all, in_folder('rubbish.pt'), stat=stat, errmsg=errmsg)
    call check_refused(stat, errmsg, lockstep_checkpoint, 'LibTorch: ')
    options = options_of('adagrad', 'mse')
    call lockstep_model_load(model, all, in_folder('net.pt'), options, stat, errmsg)
    call check_refused(stat, errmsg, lockstep_user_input, "optimizer 'adagrad' is unknown")
    options = options_of('adamw', 'mse')
    options%shards = 4
    call lockstep_model_load(model, all, in_folder('net.pt'), options, stat, errmsg, at='program.f90:load')
    call check(stat == lockstep_ok, 'a model')
    if (test_ranks < 3) then
      call lockstep_model_train(model, x(:, :3), y(:, :3), stat=stat, errmsg=errmsg)
      call check_refused(stat, errmsg, lockstep_failure, '3 rows for ')
    end if
    call lockstep_model_set_learning_rate(model, -1.0_real64, stat, errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'learning rate -1')
    call lockstep_model_save(model, in_folder('none/net.pt'), stat, errmsg)
    call check_fails_on(0, stat, errmsg, lockstep_checkpoint, 'none')
    call lockstep_model_checkpoint(model, '', stat, errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'the folder is empty')
    call lockstep_model_restore(model, in_folder('checkpoints/step-9'), stat=stat, errmsg=errmsg)
    call check_fails_on(0, stat, errmsg, lockstep_checkpoint, 'step-9')
    if (test_ranks > 1) then
      call lockstep_model_set_learning_rate(model, merge(0.5_real64, 0.25_real64, is_last()), stat, errmsg)
      call check_refused(stat, errmsg, lockstep_mismatch, 'rate 0.5')
      call lockstep_model_save(model, in_folder('a.pt'), stat, errmsg, at=merge('the last ', 'the first', is_last()))
      call check_refused(stat, errmsg, lockstep_mismatch, '(the last)')
    end if
    copy = model
    call lockstep_model_free(model, stat, errmsg, at='program.f90:free')
    call check(stat == lockstep_ok, 'the end of the model')
    call lockstep_model_free(model)
    ! No rank tells another of a model that does not live, whatever its arrays are.
    if (.not. is_last()) allocate (unallocated, source=y)
    call lockstep_model_train(copy, x, unallocated, stat=stat, errmsg=errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'lockstep_model_train: the model is none, or was freed')
    call lockstep_model_infer(model, x, y, stat, errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'the model is NULL')
    call lockstep_model_shards(none, first, last, stat, errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'the model is NULL')
    call lockstep_model_digest(copy, digest, stat, errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'was freed')
    call check(lockstep_model_steps(none) == -1, 'no steps')
  end subroutine

  ! Without stat=.
  subroutine end_job()
    type(lockstep_model) :: model
    call lockstep_model_load(model, all, in_folder('net.pt'))
    if (test_rank == 0) call bridge_remove_folder(trim(folder)//c_null_char)
    call lockstep_model_set_learning_rate(model, real(test_rank + 1, real64), at='program.f90:rate')
    call check(.false., 'the end of the job')
  end subroutine
end program
