! The heat of a rod, whose cells the ranks share: mpirun -n 2 heat
program heat
  use, intrinsic :: iso_fortran_env, only: real64
  use mpi_f08
  use lockstep
  implicit none
  integer, parameter :: cells = 300
  real(real64), parameter :: tolerance = 1e-3_real64
  real(real64) :: rod(0:cells + 1) = 0, next(cells), change, total
  type(lockstep_group) :: all
  integer :: first, last, left, right, i, steps = 0

  call MPI_Init()
  call lockstep_group_create(all, MPI_COMM_WORLD)
  call lockstep_same_on_all(all, 'tolerance', tolerance)
  first = 1 + cells*lockstep_rank(all)/lockstep_size(all)
  last = cells*(lockstep_rank(all) + 1)/lockstep_size(all)
  rod(first:last) = [(merge(i, 0, mod(i, 7) == 0), i=first, last)]
  left = merge(lockstep_rank(all) - 1, MPI_PROC_NULL, first > 1)
  right = merge(lockstep_rank(all) + 1, MPI_PROC_NULL, last < cells)

  call lockstep_phase(all, 'diffusing')
  do
    call MPI_Sendrecv(rod(first), 1, MPI_DOUBLE_PRECISION, left, 0, rod(last + 1), 1, MPI_DOUBLE_PRECISION, right, 0, &
      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(rod(last), 1, MPI_DOUBLE_PRECISION, right, 0, rod(first - 1), 1, MPI_DOUBLE_PRECISION, left, 0, &
      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    do i = first, last
      next(i) = rod(i) + 0.4_real64*(rod(i - 1) - 2*rod(i) + rod(i + 1))
    end do
    ! The same bits on any number of ranks, so all runs end after the same step.
    call lockstep_exact_sum(all, abs(next(first:last) - rod(first:last))/cells, change)
    rod(first:last) = next(first:last)
    steps = steps + 1
    if (change <= tolerance) exit
  end do
  call lockstep_exact_sum(all, rod(first:last), total)
  if (lockstep_rank(all) == 0) print '(i0, a, f0.12)', steps, ' steps, heat ', total
  call lockstep_group_free(all)
  call MPI_Finalize()
end program
