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

#include "calls_arm64.h"
