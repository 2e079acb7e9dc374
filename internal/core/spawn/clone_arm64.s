//go:build linux

#include "textflag.h"

// func clone(first, calls *call, out *outcome) (pid, errno uintptr)
//
// The first call makes the child.
// The child has the parent's stack pointer, and touches no stack. It makes the calls, one
// after the other. It ends with 127 when one of them fails, and with 0 when one of them has
// made a child that goes on.
TEXT ·clone(SB),NOSPLIT|NOFRAME,$0-40
	MOVD	first+0(FP), R11
	MOVD	calls+8(FP), R9
	MOVD	out+16(FP), R10
	MOVD	0(R11), R8
	MOVD	8(R11), R0
	MOVD	16(R11), R1
	MOVD	24(R11), R2
	MOVD	32(R11), R3
	MOVD	40(R11), R4
	SVC
	CBZ	R0, child
	CMN	$4095, R0
	BCS	refused
	MOVD	R0, pid+24(FP)
	MOVD	ZR, errno+32(FP)
	RET

refused:
	NEG	R0, R0
	MOVD	ZR, pid+24(FP)
	MOVD	R0, errno+32(FP)
	RET

#include "calls_arm64.h"
