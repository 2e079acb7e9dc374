//go:build linux

#include "textflag.h"

// func clone(args *cloneArgs, size uintptr, calls *call, out *outcome) (pid, errno uintptr)
//
// The child has the parent's stack pointer, and touches no stack. It makes the calls, one
// after the other. It ends with 127 when one of them fails, and with 0 when one of them has
// made a child that goes on.
TEXT ·clone(SB),NOSPLIT|NOFRAME,$0-48
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	calls+16(FP), R12
	MOVQ	out+24(FP), R13
	MOVQ	$435, AX // clone3
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	CMPQ	AX, $0xfffffffffffff001
	JCC	refused
	MOVQ	AX, pid+32(FP)
	MOVQ	$0, errno+40(FP)
	RET

refused:
	NEGQ	AX
	MOVQ	$0, pid+32(FP)
	MOVQ	AX, errno+40(FP)
	RET

child:
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	MOVQ	40(R12), R8
	MOVQ	48(R12), R9
	SYSCALL
	CMPQ	AX, $0xfffffffffffff001
	JCC	failed
	MOVQ	72(R12), CX
	TESTQ	CX, CX
	JZ	stored
	MOVQ	AX, (CX)

stored:
	TESTQ	$2, 56(R12)
	JZ	next
	TESTQ	AX, AX
	JZ	next // the child of this call
	MOVQ	$0, DI
	MOVQ	$231, AX // exit_group
	SYSCALL
	INT	$3

failed:
	TESTQ	$1, 56(R12)
	JNZ	next
	NEGQ	AX
	MOVQ	AX, 64(R12)
	MOVQ	R12, 0(R13)
	MOVQ	8(R13), CX
	MOVL	$1, (CX)
	MOVQ	$127, DI
	MOVQ	$231, AX // exit_group
	SYSCALL
	INT	$3

next:
	ADDQ	$80, R12
	JMP	child
