// The entry of a program that is linked with the stand-ins of libc_stubs.sh.
//
// Since 2.34 the C library calls a program's constructors itself, and crt1.o of such a machine leaves it to
// it. __libc_start_main of before, which the program is linked with, calls them through the function
// that it is given: in all versions, so this works with all.

#if !defined(__x86_64__)
#error "only x86-64 has an entry here"
#endif

  .text
  .globl _start
  .type _start, @function
_start:
  .cfi_startproc
  .cfi_undefined rip
  xorl %ebp, %ebp
  movq %rdx, %r9                 // what the loader wants called at the end
  popq %rsi                      // argc
  movq %rsp, %rdx                // argv
  andq $-16, %rsp
  pushq %rax
  pushq %rsp                     // end of the stack
  xorl %r8d, %r8d                // destructors: the loader's
  leaq run_constructors(%rip), %rcx
  movq main@GOTPCREL(%rip), %rdi
  call *__libc_start_main@GOTPCREL(%rip)
  hlt
  .cfi_endproc
  .size _start, . - _start

// run_constructors(argc, argv, environment)
  .type run_constructors, @function
run_constructors:
  .cfi_startproc
  pushq %rbx
  .cfi_adjust_cfa_offset 8
  pushq %r12
  .cfi_adjust_cfa_offset 8
  pushq %r13
  .cfi_adjust_cfa_offset 8
  pushq %r14
  .cfi_adjust_cfa_offset 8
  pushq %r15
  .cfi_adjust_cfa_offset 8
  movl %edi, %r12d
  movq %rsi, %r13
  movq %rdx, %r14
  leaq __init_array_start(%rip), %rbx
  leaq __init_array_end(%rip), %r15
1:
  cmpq %r15, %rbx
  je 2f
  movl %r12d, %edi
  movq %r13, %rsi
  movq %r14, %rdx
  call *(%rbx)
  addq $8, %rbx
  jmp 1b
2:
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  ret
  .cfi_endproc
  .size run_constructors, . - run_constructors

  .section .note.GNU-stack, "", @progbits
