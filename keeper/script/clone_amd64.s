//go:build linux

#include "textflag.h"

// func clone(args *cloneArgs, size uintptr, calls *call, failed **call) (pid, errno uintptr)
//
// The child has the parent's stack pointer, and touches no stack. It ends with 127 when
// one of its calls fails.
TEXT ·clone(SB),NOSPLIT|NOFRAME,$0-48
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	calls+16(FP), R12
	MOVQ	failed+24(FP), R13
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
	JCS	next
	CMPQ	56(R12), $0
	JNE	next
	NEGQ	AX
	MOVQ	AX, 64(R12)
	MOVQ	R12, (R13)
	MOVQ	$127, DI
	MOVQ	$231, AX // exit_group
	SYSCALL
	INT	$3

next:
	ADDQ	$72, R12
	JMP	child
