! Heat in a rod, whose cells the ranks share. While they compute, they train a model of how well the material conducts at
! the temperatures around a cell. A second rod then asks the model. All of it has the same bits on 1 to 4 ranks:
! mpirun -n 2 heat_surrogate net.pt, where net.pt is a TorchScript model with three inputs and two outputs.
program heat_surrogate
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use mpi_f08
  use lockstep
  use lockstep_torch
  implicit none
  integer, parameter :: cells = 64, shards = 4, n = cells/shards, learned_steps = 300, asked_steps = 50
  real(real64) :: rod(0:cells + 1) = 0, asked(0:cells + 1), around(3, cells), conductivity(2, cells), error, heat
  type(lockstep_group) :: all
  type(lockstep_model) :: model
  type(lockstep_model_options) :: options
  character(len=256) :: net
  integer :: first, last, shard, step
  integer(int64) :: digest

  if (command_argument_count() /= 1) stop 2
  call get_command_argument(1, net)
  call MPI_Init()
  call lockstep_group_create(all, MPI_COMM_WORLD)
  options%learning_rate = 5e-2_real64
  options%shards = shards
  call lockstep_model_load(model, all, net, options)
  call lockstep_model_shards(model, first, last)
  first = n*(first - 1) + 1 ! this rank's cells are those of its shards
  last = n*last

  call lockstep_phase(all, 'learning')
  do step = 1, learned_steps
    call look_around(rod)
    call measure()
    call lockstep_model_train(model, around(:, first:last), conductivity(:, first:last))
    call conduct(rod)
  end do

  asked = rod
  call lockstep_phase(all, 'asking')
  do step = learned_steps + 1, learned_steps + asked_steps
    call look_around(asked)
    do shard = first, last, n ! a batch of another size may have other low-order bits
      call lockstep_model_infer(model, around(:, shard:shard + n - 1), conductivity(:, shard:shard + n - 1))
    end do
    call conduct(asked)
    call look_around(rod)
    call measure()
    call conduct(rod)
  end do

  call lockstep_exact_sum(all, abs(asked(first:last) - rod(first:last))/cells, error)
  call lockstep_exact_sum(all, rod(first:last)/cells, heat)
  call lockstep_model_digest(model, digest)
  if (lockstep_rank(all) == 0) &
    print '(a, f6.4, a, f6.4, a, z16.16)', 'mean error ', error, ' of ', heat, ', weights ', digest
  call lockstep_model_free(model)
  call lockstep_group_free(all)
  call MPI_Finalize()

contains

  ! The temperatures of each cell and of its neighbours. One end of the rod is heated and cooled in turn.
  subroutine look_around(u)
    real(real64), intent(inout) :: u(0:)
    integer :: left, right, cell
    left = merge(lockstep_rank(all) - 1, MPI_PROC_NULL, first > 1)
    right = merge(lockstep_rank(all) + 1, MPI_PROC_NULL, last < cells)
    u(0) = 1 + sin(0.05_real64*step)
    call MPI_Sendrecv(u(first), 1, MPI_DOUBLE_PRECISION, left, 0, u(last + 1), 1, MPI_DOUBLE_PRECISION, right, 0, &
      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(u(last), 1, MPI_DOUBLE_PRECISION, right, 0, u(first - 1), 1, MPI_DOUBLE_PRECISION, left, 0, &
      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    do cell = first, last
      around(:, cell) = u(cell - 1:cell + 1)
    end do
  end subroutine

  ! What the model learns, on both sides of each cell.
  subroutine measure()
    real(real64) :: squares(2, first:last)
    squares = ((around(:2, first:last) + around(2:, first:last))/2)**2
    conductivity(:, first:last) = 0.1_real64 + 0.3_real64*squares/(1 + squares)
  end subroutine

  subroutine conduct(u)
    real(real64), intent(inout) :: u(0:)
    real(real64) :: flow(2, first:last)
    flow = conductivity(:, first:last)*(around(:2, first:last) - around(2:, first:last))
    u(first:last) = u(first:last) + flow(1, :) - flow(2, :)
  end subroutine
end program
