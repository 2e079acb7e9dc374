//go:build linux

#include "textflag.h"

// func clone(args *cloneArgs, size uintptr, calls *call, out *outcome) (pid, errno uintptr)
//
// The child has the parent's stack pointer, and touches no stack. It makes the calls, one
// after the other. It ends with 127 when one of them fails, and with 0 when one of them has
// made a child that goes on.
TEXT ·clone(SB),NOSPLIT|NOFRAME,$0-48
	MOVD	args+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	calls+16(FP), R9
	MOVD	out+24(FP), R10
	MOVD	$435, R8 // clone3
	SVC
	CBZ	R0, child
	CMN	$4095, R0
	BCS	refused
	MOVD	R0, pid+32(FP)
	MOVD	ZR, errno+40(FP)
	RET

refused:
	NEG	R0, R0
	MOVD	ZR, pid+32(FP)
	MOVD	R0, errno+40(FP)
	RET

child:
	MOVD	0(R9), R8
	MOVD	8(R9), R0
	MOVD	16(R9), R1
	MOVD	24(R9), R2
	MOVD	32(R9), R3
	MOVD	40(R9), R4
	MOVD	48(R9), R5
	SVC
	CMN	$4095, R0
	BCS	failed
	MOVD	72(R9), R11
	CBZ	R11, stored
	MOVD	R0, (R11)

stored:
	MOVD	56(R9), R11
	TBZ	$1, R11, next
	CBZ	R0, next // the child of this call
	MOVD	ZR, R0
	MOVD	$94, R8 // exit_group
	SVC
	BRK

failed:
	MOVD	56(R9), R11
	TBNZ	$0, R11, next
	NEG	R0, R0
	MOVD	R0, 64(R9)
	MOVD	R9, 0(R10)
	MOVD	8(R10), R11
	MOVD	$1, R12
	MOVW	R12, (R11)
	MOVD	$127, R0
	MOVD	$94, R8 // exit_group
	SVC
	BRK

next:
	ADD	$80, R9
	B	child
