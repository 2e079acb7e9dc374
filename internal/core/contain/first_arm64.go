package contain

import "encoding/binary"

// firstCode is followed by its data: act (32 bytes), all (8), usr1 (8), name.
var firstCode = little([]uint32{
	0xf94003e9, // ldr x9, [sp]: argc
	0xd28010c8, // mov x8, 134: rt_sigaction
	0xd2800220, // mov x0, 17: SIGCHLD
	0x10000421, // adr x1, act
	0xd2800002, // mov x2, 0
	0xd2800103, // mov x3, 8
	0xd4000001, // svc 0
	0xd28010e8, // mov x8, 135: rt_sigprocmask
	0xd2800040, // mov x0, 2: SIG_SETMASK
	0x10000461, // adr x1, all
	0xd2800002, // mov x2, 0
	0xd2800103, // mov x3, 8
	0xd4000001, // svc 0
	0xf100093f, // cmp x9, 2
	0x54000220, // b.eq idle
	0xd2801128, // wait: mov x8, 137: rt_sigtimedwait
	0x100003c0, // adr x0, usr1
	0xd2800001, // mov x1, 0
	0xd2800002, // mov x2, 0
	0xd2800103, // mov x3, 8
	0xd4000001, // svc 0
	0xf100281f, // cmp x0, 10: SIGUSR1
	0x54ffff21, // b.ne wait
	0xd2800c28, // mov x8, 97: unshare
	0xd2a80000, // mov x0, CLONE_NEWNET
	0xd4000001, // svc 0
	0xb5fffea0, // cbnz x0, wait
	0xd28014e8, // mov x8, 167: prctl
	0xd28001e0, // mov x0, 15: PR_SET_NAME
	0x10000261, // adr x1, name
	0xd4000001, // svc 0
	0xd28010a8, // idle: mov x8, 133: rt_sigsuspend
	0x10000180, // adr x0, all
	0xd2800101, // mov x1, 8
	0xd4000001, // svc 0
	0x17fffffc, // b idle
})

func little(words []uint32) (b []byte) {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
