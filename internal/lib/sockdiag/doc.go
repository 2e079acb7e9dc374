// Package sockdiag asks the kernel for the TCP sockets of this machine: who owns the one
// with two given ends, and which ones listen. [Open] makes a connection for questions
// ([Conn.Find], [Conn.Listening]), and [OpenIn] one for those about another network namespace;
// [Table] reads the older answer, the text of /proc/net/tcp and tcp6, where the kernel has no
// sock_diag or the namespace may not be entered. Connections exist on Linux alone.
//
// # Questions and answers
//
// sock_diag(7) is a protocol of netlink. Numbers are in the machine's byte order, but for
// addresses and ports, which are as on the wire. A question:
//
//	 0  u32  length, 72
//	 4  u16  type, SOCK_DIAG_BY_FAMILY
//	 6  u16  flags: NLM_F_REQUEST, and NLM_F_DUMP if all sockets that match are wanted
//	 8  u32  sequence: each message of the answer repeats it
//	12  u32  port, 0
//	16  u8   family, AF_INET or AF_INET6
//	17  u8   protocol, IPPROTO_TCP
//	18  u16  extensions and padding, 0
//	20  u32  set of states, bit 1 << state
//	24  u16  local port      26  u16 remote port
//	28  16 bytes local address      44  16 bytes remote address
//	60  u32  interface, 0
//	64  u64  cookie, all ones: any
//
// An answer is messages with the same header, each at the next multiple of 4. One of the
// type SOCK_DIAG_BY_FAMILY is a socket:
//
//	16  u8   family          17  u8  state
//	20  u16  local port      22  u16 remote port
//	24  16 bytes local address      40  16 bytes remote address
//	80  u32  user            84  u32 inode
//
// and attributes after it, which are passed over. The question for one socket is answered by
// one message: the socket, or NLMSG_ERROR with a negative errno, which is ENOENT where
// there is none. The question for all is answered by any number of datagrams, and
// NLMSG_DONE ends the last one, with a negative errno if they are not all.
//
// A message that comes from a process other than the kernel, has another sequence, or
// does not end at its length, is an error: an answer is used only if it is complete.
package sockdiag
