//go:build linux && (amd64 || arm64)

package seccomp

import "golang.org/x/sys/unix"

// Default denies what is of use for an escape from a sandbox alone, or opens large parts
// of the kernel that ordinary programs do not need. It is a second wall: the namespaces
// and the capabilities that are missing are the first.
//
// A call that is denied answers EPERM; but clone3, whose flags a filter cannot see, ENOSYS,
// so that programs take clone. 32-bit programs have no system calls.
func Default() (Filter, error) { return Assemble(arch, rules()), nil }

// Keyed is Default for who makes programs inside of a sandbox: it lets a clone3 through that
// has the key.
func Keyed(k Key) (Filter, error) {
	all := rules()
	for i := range all {
		if all[i].Call == unix.SYS_CLONE3 {
			all[i].Key = &k
		}
	}
	return Assemble(arch, all), nil
}

// namespaces are the flags of clone(2) that make them. CLONE_NEWTIME is none: there it
// is part of the exit signal.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

func rules() []Rule {
	const eperm = uint16(unix.EPERM)
	all := []Rule{
		{Call: unix.SYS_CLONE3, Errno: uint16(unix.ENOSYS)},
		{Call: unix.SYS_CLONE, Errno: eperm, When: When{Arg: 0, Bits: namespaces}},
		// TIOCSTI and TIOCLINUX put bytes into a terminal's input: into that of who reads
		// the terminal outside.
		{Call: unix.SYS_IOCTL, Errno: eperm, When: When{Arg: 1, Is: []uint32{unix.TIOCSTI, 0x541c}}},
		// Each of these loads a module for anybody: the errors are those of a kernel that has none.
		{Call: unix.SYS_IOCTL, Errno: uint16(unix.ENOPKG), When: When{Arg: 1, Is: bridges}},
		{Call: unix.SYS_IOCTL, Errno: uint16(unix.EINVAL), When: When{Arg: 1, Is: []uint32{unix.TIOCSETD}}},
		// The kernel has some forty families of sockets, and loads a module for who asks for one: to
		// the machine below this one, to its ciphers, and whatever is on no list of dangers yet.
		{Call: unix.SYS_SOCKET, Errno: uint16(unix.EAFNOSUPPORT), When: When{Arg: 0,
			IsNot: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}}},
		{Call: unix.SYS_SOCKETPAIR, Errno: uint16(unix.EAFNOSUPPORT), When: When{Arg: 0, IsNot: []uint32{unix.AF_UNIX}}},
		// Nothing but TCP and UDP leads out of a sandbox, and the others are modules, too (SCTP, L2TP).
		{Call: unix.SYS_SOCKET, Errno: uint16(unix.EPROTONOSUPPORT), When: When{Arg: 0, Is: []uint32{unix.AF_INET, unix.AF_INET6}},
			And: &When{Arg: 2, IsNot: ordinary}},
		// A kind of socket leads to a module, too (DCCP is of kind 6): streams, datagrams and raw ones are 1 to 3.
		{Call: unix.SYS_SOCKET, Errno: uint16(unix.ESOCKTNOSUPPORT), When: When{Arg: 0, Is: []uint32{unix.AF_INET, unix.AF_INET6}},
			And: &When{Arg: 1, Bits: 0xc}},
		// What programs send each other over netlink (NETLINK_USERSOCK) is charged to nobody, each protocol
		// of netlink may be a module, and over NETLINK_GENERIC anybody has modules loaded by their names.
		{Call: unix.SYS_SOCKET, Errno: uint16(unix.EPROTONOSUPPORT), When: When{Arg: 0, Is: []uint32{unix.AF_NETLINK}},
			And: &When{Arg: 2, IsNot: netlinks}},
		// fs.aio-max-nr is one number for the whole machine. Who finds no AIO does without.
		{Call: unix.SYS_IO_SETUP, Errno: uint16(unix.ENOSYS)},
		// The limit of core files is 1 byte, with which the kernel starts no handler, as it
		// does with 0, as root, outside. Who lowers it to 0 has it already.
		{Call: unix.SYS_SETRLIMIT, When: core(0)},
		{Call: unix.SYS_PRLIMIT64, When: core(1), And: &When{Arg: 2, IsNot: []uint32{0}}},
		{Call: unix.SYS_PRLIMIT64, When: core(1), And: &When{Arg: 2, Upper: true, IsNot: []uint32{0}}},
		// PER_LINUX, PER_LINUX32, both with UNAME26, and the question what it is.
		{Call: unix.SYS_PERSONALITY, Errno: eperm, When: When{Arg: 0, IsNot: []uint32{0, 8, 0x20000, 0x20008, 0xffffffff}}},
	}
	for _, call := range append(more,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
		unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, openTreeAttr,
		unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
		unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SYSLOG,
	) {
		all = append(all, Rule{Call: call, Errno: eperm})
	}
	return all
}

// ordinary are the protocols of sockets of the internet. Those of raw ones the kernel refuses.
var ordinary = []uint32{0, unix.IPPROTO_ICMP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6, unix.IPPROTO_RAW, unix.IPPROTO_MPTCP}

// netlinks are the protocols of netlink that ordinary programs use: for addresses and routes, lists of
// sockets (ss), the audit of logins (su), which the kernel refuses, and devices (libudev). None is a module.
var netlinks = []uint32{unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG, unix.NETLINK_AUDIT, unix.NETLINK_KOBJECT_UEVENT}

// bridges are the requests for bridges and VLANs (linux/sockios.h): SIOCGIFBR, SIOCSIFBR, SIOCBRADDBR,
// SIOCBRDELBR, SIOCGIFVLAN, SIOCSIFVLAN.
var bridges = []uint32{0x8940, 0x8941, 0x89a0, 0x89a1, 0x8982, 0x8983}

// core is a limit of core files in an argument.
func core(arg uint8) When { return When{Arg: arg, Is: []uint32{unix.RLIMIT_CORE}} }

// openTreeAttr is open_tree_attr(2), Linux 6.15.
const openTreeAttr = 467
