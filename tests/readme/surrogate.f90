! Ranks learn an equation of state from the cells that they simulate: mpirun -n 2 surrogate net.pt checkpoints
program surrogate
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use mpi_f08
  use lockstep
  use lockstep_torch
  implicit none
  integer, parameter :: cells = 64, steps = 300
  real(real64) :: states(3, cells), results(2, cells), learned(2, 1), loss
  type(lockstep_group) :: all
  type(lockstep_model) :: model
  type(lockstep_model_options) :: options
  character(len=256) :: net, checkpoints
  integer :: first, last, cell
  integer(int64) :: step, digest

  if (command_argument_count() /= 2) stop 2
  call get_command_argument(1, net)
  call get_command_argument(2, checkpoints)
  call MPI_Init()
  call lockstep_group_create(all, MPI_COMM_WORLD)
  options%learning_rate = 1e-2_real64
  options%shards = 4 ! the same bits on 1 to 4 ranks
  call lockstep_model_load(model, all, net, options)
  call lockstep_model_restore(model, checkpoints, step) ! -1 at the first start
  call lockstep_model_shards(model, first, last)
  first = cells/options%shards*(first - 1) + 1
  last = cells/options%shards*last

  do step = max(step, 0_int64), steps - 1
    do cell = first, last
      call simulate(step, cell - 1, states(:, cell), results(:, cell))
    end do
    call lockstep_model_train(model, states(:, first:last), results(:, first:last), loss)
    if (mod(step + 1, 100_int64) == 0) call lockstep_model_checkpoint(model, checkpoints)
  end do

  call simulate(int(steps, int64), 5, states(:, 1), results(:, 1))
  call lockstep_model_infer(model, states(:, :1), learned) ! of this rank alone
  call lockstep_model_digest(model, digest)
  if (lockstep_rank(all) == 0) &
    print '(a, f4.2, a, f4.2, a, z16.16)', 'pressure ', learned(1, 1), ' for ', results(1, 1), ', weights ', digest
  call lockstep_model_free(model)
  call lockstep_group_free(all)
  call MPI_Finalize()

contains

  ! Density, temperature and speed of a cell, and its pressure and energy.
  subroutine simulate(step, cell, state, result)
    integer(int64), intent(in) :: step
    integer, intent(in) :: cell
    real(real64), intent(out) :: state(3), result(2)
    state(1) = 1 + 0.5_real64*sin(0.7_real64*cell + 0.1_real64*step)
    state(2) = 1 + 0.5_real64*cos(1.3_real64*cell - 0.2_real64*step)
    state(3) = sin(2.1_real64*cell)
    result(1) = state(1)*state(2)
    result(2) = 2.5_real64*state(2) + 0.5_real64*state(3)*state(3)
  end subroutine
end program
