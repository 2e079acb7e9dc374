//go:build linux

#include "textflag.h"

#define SERVES

// func zygoteAt() uintptr
TEXT ·zygoteAt(SB),NOSPLIT,$0-8
	LEAQ	·zygote(SB), AX
	MOVQ	AX, ret+0(FP)
	RET

// func zygote()
//
// The program of a zygote; see zygote.go. It is copied, so it refers to nothing outside of
// itself. R14 is the order that it carries out.
TEXT ·zygote(SB),NOSPLIT|NOFRAME,$0-0
	MOVQ	$9, AX // mmap
	MOVQ	$0x10000000, DI // memoryAt
	MOVQ	$0x1000000, SI // span
	MOVQ	$3, DX // PROT_READ|PROT_WRITE
	MOVQ	$0x11, R10 // MAP_SHARED|MAP_FIXED
	MOVQ	$1, R8
	MOVQ	$0, R9
	SYSCALL
	CMPQ	AX, $0x10000000
	JNE	end
	MOVQ	$9, AX // mmap
	MOVQ	$0x20000000, DI // sharedAt
	MOVQ	$0x1000000, SI // span
	MOVQ	$3, DX
	MOVQ	$0x11, R10
	MOVQ	$2, R8
	MOVQ	$0, R9
	SYSCALL
	CMPQ	AX, $0x20000000
	JNE	end

wait:
	MOVQ	$0x10000000, SI // head.message, and its
	MOVQ	$64, 40(SI)     // controlLength, which the kernel changes
	MOVQ	$47, AX         // recvmsg
	MOVQ	$0, DI
	MOVQ	$0x40000000, DX // MSG_CMSG_CLOEXEC
	SYSCALL
	CMPQ	AX, $8
	JNE	end
	MOVQ	$0x10000000, SI
	MOVQ	56(SI), R14 // head.order
	MOVQ	0(R14), R12 // calls
	MOVQ	8(R14), R13 // outcome
	MOVQ	16(R14), DI // args
	TESTQ	DI, DI
	JZ	child // it makes the calls itself
	MOVQ	$88, SI
	MOVQ	24(R14), R10 // key
	MOVQ	32(R14), R8
	MOVQ	40(R14), R9
	MOVQ	$435, AX // clone3
	SYSCALL
	MOVQ	$0, R10 // nobody else has it, not for a moment
	MOVQ	$0, R8
	MOVQ	$0, R9
	TESTQ	AX, AX
	JZ	child
	CMPQ	AX, $0xfffffffffffff001
	JCS	served
	NEGQ	AX
	MOVL	AX, 52(R14) // errno
	MOVL	$0, 48(R14) // unborn
	LEAQ	48(R14), DI
	MOVQ	$1, SI // FUTEX_WAKE
	MOVQ	$1, DX
	MOVQ	$202, AX // futex
	SYSCALL

served:
	MOVQ	$3, DI
	MOVQ	$0x7fffffff, SI
	MOVQ	$0, DX
	MOVQ	$436, AX // close_range
	SYSCALL
	JMP	wait

end:
	MOVQ	$0, DI
	MOVQ	$231, AX // exit_group
	SYSCALL
	INT	$3

#include "calls_amd64.h"

	QUAD	$0x646e652d65746f67 // the end: "gote-end"
