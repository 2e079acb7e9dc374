//go:build linux

#include "textflag.h"

#define SERVES

// func zygoteAt() uintptr
TEXT ·zygoteAt(SB),NOSPLIT,$0-8
	MOVD	$·zygote(SB), R0
	MOVD	R0, ret+0(FP)
	RET

// func zygote()
//
// The program of a zygote; see zygote.go. It is copied, so it refers to nothing outside of
// itself. R13 is the order that it carries out.
TEXT ·zygote(SB),NOSPLIT|NOFRAME,$0-0
	MOVD	$0x10000000, R0 // memoryAt
	MOVD	$0x1000000, R1 // span
	MOVD	$3, R2 // PROT_READ|PROT_WRITE
	MOVD	$0x11, R3 // MAP_SHARED|MAP_FIXED
	MOVD	$1, R4
	MOVD	$0, R5
	MOVD	$222, R8 // mmap
	SVC
	MOVD	$0x10000000, R1
	CMP	R1, R0
	BNE	end
	MOVD	$0x20000000, R0 // sharedAt
	MOVD	$0x1000000, R1
	MOVD	$3, R2
	MOVD	$0x11, R3
	MOVD	$2, R4
	MOVD	$0, R5
	MOVD	$222, R8 // mmap
	SVC
	MOVD	$0x20000000, R1
	CMP	R1, R0
	BNE	end

wait:
	MOVD	$0x10000000, R1 // head.message, and its
	MOVD	$64, R2
	MOVD	R2, 40(R1) // controlLength, which the kernel changes
	MOVD	$0, R0
	MOVD	$0x40000000, R2 // MSG_CMSG_CLOEXEC
	MOVD	$212, R8 // recvmsg
	SVC
	CMP	$8, R0
	BNE	end
	MOVD	$0x10000000, R1
	MOVD	56(R1), R13 // head.order
	MOVD	0(R13), R9 // calls
	MOVD	8(R13), R10 // outcome
	MOVD	16(R13), R0 // args
	CBZ	R0, child // it makes the calls itself
	MOVD	$88, R1
	MOVD	24(R13), R3 // key
	MOVD	32(R13), R4
	MOVD	40(R13), R5
	MOVD	$435, R8 // clone3
	SVC
	MOVD	$0, R3 // nobody else has it, not for a moment
	MOVD	$0, R4
	MOVD	$0, R5
	CBZ	R0, child
	CMN	$4095, R0
	BCC	served
	NEG	R0, R0
	MOVW	R0, 52(R13) // errno
	DMB	$0xB
	MOVW	ZR, 48(R13) // unborn
	ADD	$48, R13, R0
	MOVD	$1, R1 // FUTEX_WAKE
	MOVD	$1, R2
	MOVD	$98, R8 // futex
	SVC

served:
	MOVD	$3, R0
	MOVD	$0x7fffffff, R1
	MOVD	$0, R2
	MOVD	$436, R8 // close_range
	SVC
	B	wait

end:
	MOVD	$0, R0
	MOVD	$94, R8 // exit_group
	SVC
	BRK

#include "calls_arm64.h"

	WORD	$0x65746f67 // the end: "gote-end"
	WORD	$0x646e652d
