! What the modules of lockstep share: texts as C has them, and how a call ends.
module lockstep_calls
  use, intrinsic :: iso_c_binding, only: c_char, c_f_pointer, c_int, c_loc, c_null_char, c_null_ptr, c_ptr, c_size_t
  implicit none
  private
  public :: address, c_text, finish, text_at, text_of

  ! A text as C has it, or none.
  type :: c_text
    character(kind=c_char), allocatable :: letters(:)
  end type

  interface
    type(c_ptr) function c_last_error() bind(C, name='lockstep_last_error')
      import
    end function
    subroutine c_abort() bind(C, name='lockstep_abort')
    end subroutine
    integer(c_size_t) function c_length(text) bind(C, name='strlen')
      import
      type(c_ptr), value :: text
    end function
  end interface

contains

  function text_of(text) result(made)
    character(len=*), intent(in), optional :: text
    type(c_text) :: made
    integer :: i, length
    if (.not. present(text)) return
    length = len_trim(text)
    allocate (made%letters(length + 1))
    do i = 1, length
      made%letters(i) = text(i:i)
    end do
    made%letters(length + 1) = c_null_char
  end function

  ! While `text` lives.
  function address(text)
    type(c_text), intent(in), target :: text
    type(c_ptr) :: address
    address = c_null_ptr
    if (allocated(text%letters)) address = c_loc(text%letters(1))
  end function

  function text_at(place) result(text)
    type(c_ptr), intent(in) :: place
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    call c_f_pointer(place, letters, [c_length(place)])
    allocate (character(len=size(letters)) :: text)
    do i = 1, size(letters)
      text(i:i) = letters(i)
    end do
  end function

  ! stat= and errmsg= of a call with that code, of which 0 is lockstep_ok; without stat=, a failure ends the job.
  subroutine finish(code, stat, errmsg)
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    if (present(stat)) stat = int(code)
    if (code == 0) return
    if (.not. present(stat)) call c_abort()
    if (present(errmsg)) errmsg = text_at(c_last_error())
  end subroutine

end module
