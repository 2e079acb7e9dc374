// What a child does: it makes the calls from R12 on; R13 is the outcome. It touches no
// stack. A zygote (SERVES) makes calls of its own so, too, and then waits for orders again.
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
	TESTQ	$4, 56(R12)
	JNZ	narrow
	MOVQ	AX, (CX)
	JMP	stored

narrow:
	MOVL	AX, (CX)

stored:
#ifdef SERVES
	TESTQ	$8, 56(R12)
	JNZ	served
#endif
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
