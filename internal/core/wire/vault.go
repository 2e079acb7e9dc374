package wire

// The vault protocol runs between the keeper and those who hold its
// descriptors (the anchor, and the launcher with a mirror of it) on a
// SOCK_SEQPACKET socket, one message a packet:
//
//	u8   operation (Vault*)
//	u32  slot; u32 gen        the process, or VaultGlobal
//	u8*  kinds (FD*)          one for each descriptor that travels along,
//	                          or the ones to drop (none: all)
//
// Puts and drops are not answered: once sendmsg has returned, the kernel holds
// the descriptors, whatever becomes of the sender.
const (
	VaultPut   = 1 + iota // keeper → anchor, with descriptors
	VaultDrop             // keeper → anchor
	VaultFetch            // keeper → anchor: send me all you hold
	VaultItem             // anchor → keeper, with descriptors
	VaultEnd              // anchor → keeper: that was all
	VaultMark             // keeper → anchor: everything follows again; what is held stays until VaultSweep
	VaultSweep            // keeper → anchor: that was everything; forget what did not come again
)

// VaultGlobal is the slot of descriptors that belong to no process.
const VaultGlobal = ^uint32(0)

// Kinds of descriptors.
const (
	FDStdin    = 1 + iota // writing end of the stdin pipe
	FDStdout              // reading end
	FDStderr              // reading end
	FDPTY                 // terminal master
	FDStageR              // staging pipe between terminal and spool
	FDStageW              //
	FDFeedR               // staging pipe between stdin memory and terminal
	FDFeedW               //
	FDPid                 // pidfd
	FDStdinMem            // memfd of bytes accepted and not yet delivered
	FDBoard               // global: the board
	FDWake                // global: the eventfd that wakes the server
	FDListen              // global: the keeper's listening socket
	FDUrgent              // global: eventfd, written when a drop must not wait (see anchor)
	FDGate                // was used by former versions
)

// VaultMessage is one packet without its descriptors.
type VaultMessage struct {
	Op    uint8
	Ref   Ref
	Kinds []byte
}

// Append encodes the message.
func (m *VaultMessage) Append(b []byte) []byte {
	e := Enc{B: b}
	e.U8(m.Op)
	m.Ref.Append(&e)
	return append(e.B, m.Kinds...)
}

// ParseVault decodes a packet. Kinds aliases b.
func ParseVault(b []byte) (m VaultMessage, err error) {
	d := Dec{B: b}
	m = VaultMessage{Op: d.U8(), Ref: ParseRef(&d)}
	m.Kinds = d.B
	return m, d.err
}
