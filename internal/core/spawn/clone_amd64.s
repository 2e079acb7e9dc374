//go:build linux

#include "textflag.h"

// func clone(first, calls *call, out *outcome) (pid, errno uintptr)
//
// The first call makes the child.
// The child has the parent's stack pointer, and touches no stack. It makes the calls, one
// after the other. It ends with 127 when one of them fails, and with 0 when one of them has
// made a child that goes on.
TEXT ·clone(SB),NOSPLIT|NOFRAME,$0-40
	MOVQ	first+0(FP), R14
	MOVQ	calls+8(FP), R12
	MOVQ	out+16(FP), R13
	MOVQ	0(R14), AX
	MOVQ	8(R14), DI
	MOVQ	16(R14), SI
	MOVQ	24(R14), DX
	MOVQ	32(R14), R10
	MOVQ	40(R14), R8
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	CMPQ	AX, $0xfffffffffffff001
	JCC	refused
	MOVQ	AX, pid+24(FP)
	MOVQ	$0, errno+32(FP)
	RET

refused:
	NEGQ	AX
	MOVQ	$0, pid+24(FP)
	MOVQ	AX, errno+32(FP)
	RET

#include "calls_amd64.h"
