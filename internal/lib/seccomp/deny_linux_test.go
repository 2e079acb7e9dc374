//go:build linux && (amd64 || arm64)

package seccomp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnlyOrdinarySocketsAreOpened: the kernel loads a module for each family and protocol that
// anybody asks for.
func TestOnlyOrdinarySocketsAreOpened(t *testing.T) {
	f, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	const seqpacket = 5
	const atOnce = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	kind := deny | uint32(unix.ESOCKTNOSUPPORT)
	family, protocol := deny|uint32(unix.EAFNOSUPPORT), deny|uint32(unix.EPROTONOSUPPORT)
	for what, c := range map[string]struct {
		call                   uint32
		domain, kind, protocol uint64
		want                   uint32
	}{
		"a unix socket":                          {unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0, allow},
		"TCP":                                    {unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP, allow},
		"TCP of IPv6, without its number":        {unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_STREAM, 0, allow},
		"TCP on several ways, which Go asks for": {unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, allow},
		"UDP":                                    {unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP, allow},
		"a question about routes":                {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, allow},
		"messages between programs in netlink":   {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_USERSOCK, protocol},
		"lists of sockets":                       {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_SOCK_DIAG, allow},
		"news of devices":                        {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_KOBJECT_UEVENT, allow},
		"families of netlink, by name":           {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC, protocol},
		"ciphers by netlink":                     {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_CRYPTO, protocol},
		"a protocol of netlink of later":         {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, 31, protocol},
		"DCCP, by its kind alone":                {unix.SYS_SOCKET, unix.AF_INET, 6, 0, kind},
		"packets in order, which do not wait":    {unix.SYS_SOCKET, unix.AF_INET6, seqpacket | atOnce, 0, kind},
		"UDP that does not wait":                 {unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM | atOnce, 0, allow},
		"a pair":                                 {unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, allow},
		"a pair of TIPC":                         {unix.SYS_SOCKETPAIR, unix.AF_TIPC, seqpacket, 0, family},
		"packets":                                {unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW, 0, family},
		"the machine below":                      {unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0, family},
		"the kernel's ciphers":                   {unix.SYS_SOCKET, unix.AF_ALG, seqpacket, 0, family},
		"RDS":                                    {unix.SYS_SOCKET, unix.AF_RDS, seqpacket, 0, family},
		"a family that is made later":            {unix.SYS_SOCKET, 99, unix.SOCK_STREAM, 0, family},
		"a family in the upper half":             {unix.SYS_SOCKET, unix.AF_VSOCK | 1<<32, unix.SOCK_STREAM, 0, family},
		"SCTP":                                   {unix.SYS_SOCKET, unix.AF_INET, seqpacket, unix.IPPROTO_SCTP, protocol},
		"L2TP":                                   {unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_L2TP, protocol},
	} {
		if got := f.run(t, arch, c.call, [6]uint64{c.domain, c.kind, c.protocol}); got != c.want {
			t.Errorf("%s: %#x, want %#x", what, got, c.want)
		}
	}
}

// TestNoIoctlLoadsAModule: those of bridges, VLANs and line disciplines do it for anybody.
func TestNoIoctlLoadsAModule(t *testing.T) {
	f, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[uint64]uint32{
		0x8940: deny | uint32(unix.ENOPKG), 0x8941: deny | uint32(unix.ENOPKG), 0x89a0: deny | uint32(unix.ENOPKG),
		0x89a1: deny | uint32(unix.ENOPKG), 0x8982: deny | uint32(unix.ENOPKG), 0x8983: deny | uint32(unix.ENOPKG),
		unix.TIOCSETD: deny | uint32(unix.EINVAL), unix.TIOCGETD: allow, unix.SIOCGIFNAME: allow, unix.TIOCGWINSZ: allow,
	} {
		if got := f.run(t, arch, unix.SYS_IOCTL, [6]uint64{3, request, 0}); got != want {
			t.Errorf("ioctl %#x: %#x, want %#x", request, got, want)
		}
	}
}
