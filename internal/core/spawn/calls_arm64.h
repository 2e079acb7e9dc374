// What a child does: it makes the calls from R9 on; R10 is the outcome. It touches no
// stack. A zygote (SERVES) makes calls of its own so, too, and then waits for orders again.
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
	MOVD	56(R9), R12
	CBZ	R11, stored
	TBNZ	$2, R12, narrow
	MOVD	R0, (R11)
	B	stored

narrow:
	MOVW	R0, (R11)

stored:
#ifdef SERVES
	TBNZ	$3, R12, served
#endif
	TBZ	$1, R12, next
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
	DMB	$0xB
	MOVD	$127, R0
	MOVD	$94, R8 // exit_group
	SVC
	BRK

next:
	ADD	$80, R9
	B	child
