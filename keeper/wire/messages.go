package wire

import (
	"github.com/tend-run/tend/process"
)

// Operations.
const (
	OpHello     = 1 + iota // version → Hello, with the board and the wake eventfd
	OpSpawn                // Spawn → Spawned
	OpSignal               // Ref, u32 signal, u8 scope
	OpKill                 // Ref, u8 cause → Killed
	OpResize               // Ref, u32 cols, u32 rows; then u32 cols, u32 rows that it must have, if any. The answer: u32 cols, u32 rows before
	OpStdin                // Ref → nothing, with the stdin memfd
	OpFeed                 // Ref: the board says more was accepted; no answer
	OpTrim                 // Ref, u8 stream, u64 before
	OpRetire               // Ref, repeated: the server has taken over; the slots are free; no answer
	OpSpaceFree            // nothing: space was freed, try again; no answer
	OpUpgrade              // path of a program to go on as; answered only if that fails
	OpPin                  // Ref, u8 1 pinned or 0
	OpKillNamed            // as OpKill; the answer has Strays and Names
)

// Ref names a process by its place on the board.
type Ref struct{ Slot, Gen uint32 }

func (r Ref) Append(e *Enc) { e.U32(r.Slot); e.U32(r.Gen) }
func ParseRef(d *Dec) Ref   { return Ref{d.U32(), d.U32()} }

// Hello is the keeper's answer to a hello.
type Hello struct {
	Version uint32
	PID     uint32
	// Facts about this machine, as "name=value" or "name!reason" when a
	// promise is not kept.
	Facts []string
}

func (h *Hello) Append(e *Enc) { e.U32(h.Version); e.U32(h.PID); e.Strs(h.Facts) }
func ParseHello(b []byte) (h Hello, err error) {
	d := Dec{B: b}
	h = Hello{d.U32(), d.U32(), d.Strs()}
	return h, d.Err()
}

// Spawn asks for a process. Spec is the encoded process.Spec as it goes to the
// journal; the other fields are what the kernel is told, worked out by the
// server (PATH, user and environment), so that the keeper looks nothing up.
type Spawn struct {
	Spec     []byte
	Path     string
	Argv     []string
	Env      []string
	Dir      string
	Cred     bool
	UID, GID uint32
	Groups   []uint32
	// Sync is when output is forced to the disk; SyncDefault is none here.
	Sync process.Sync
}

func (s *Spawn) Append(e *Enc) {
	e.Bytes(s.Spec)
	e.Str(s.Path)
	e.Strs(s.Argv)
	e.Strs(s.Env)
	e.Str(s.Dir)
	e.Bool(s.Cred)
	e.U32(s.UID)
	e.U32(s.GID)
	e.U32(uint32(len(s.Groups)))
	for _, g := range s.Groups {
		e.U32(g)
	}
	e.U8(uint8(s.Sync))
}

func ParseSpawn(b []byte) (s Spawn, err error) {
	d := Dec{B: b}
	s = Spawn{Spec: d.Bytes(), Path: d.Str(), Argv: d.Strs(), Env: d.Strs(), Dir: d.Str(),
		Cred: d.Bool(), UID: d.U32(), GID: d.U32()}
	n := int(d.U32())
	if d.err == nil && n > len(d.B)/4 {
		return s, ErrShort
	}
	for range n {
		s.Groups = append(s.Groups, d.U32())
	}
	if d.err == nil && len(d.B) > 0 { // a server before this version says nothing
		s.Sync = process.Sync(d.U8())
	}
	return s, d.Err()
}

// Spawned is the answer to a Spawn.
type Spawned struct {
	Ref
	PID uint32
	// Existing: a process with this id and an equal spec was there already.
	Existing bool
	// Keeper is the pid of the keeper that answers: the place on the board is
	// on the board of its hello.
	Keeper uint32
}

func (s *Spawned) Append(e *Enc) { s.Ref.Append(e); e.U32(s.PID); e.Bool(s.Existing); e.U32(s.Keeper) }
func ParseSpawned(b []byte) (s Spawned, err error) {
	d := Dec{B: b}
	s = Spawned{ParseRef(&d), d.U32(), d.Bool(), d.U32()}
	return s, d.Err()
}

// Killed is the answer to a Kill.
type Killed struct {
	Verified  bool
	Survivors []uint32
	// Strays are alive, and may or may not have been in the tree. Names are of the
	// survivors and then of the strays. The answer to OpKill has neither.
	Strays []uint32
	Names  []string
}

func (k *Killed) Append(e *Enc) {
	k.AppendShort(e)
	e.appendPIDs(k.Strays)
	e.Strs(k.Names)
}

// AppendShort encodes the answer to OpKill, which servers of before send.
func (k *Killed) AppendShort(e *Enc) {
	e.Bool(k.Verified)
	e.appendPIDs(k.Survivors)
}

func (e *Enc) appendPIDs(pids []uint32) {
	e.U32(uint32(len(pids)))
	for _, p := range pids {
		e.U32(p)
	}
}

// ParseKilled decodes both.
func ParseKilled(b []byte) (k Killed, err error) {
	d := Dec{B: b}
	k.Verified = d.Bool()
	k.Survivors = d.pids()
	if len(d.B) > 0 {
		k.Strays = d.pids()
		k.Names = d.Strs()
	}
	return k, d.Err()
}

func (d *Dec) pids() (out []uint32) {
	n := int(d.U32())
	if d.err != nil || n > len(d.B)/4 {
		d.err = ErrShort
		return nil
	}
	for range n {
		out = append(out, d.U32())
	}
	return out
}

// Codes of an Error: the sentinels of package process.
const (
	CodeOther = iota
	CodeStart // Reason, Errno and What make a process.StartError
	CodeInvalid
	CodeNotFound
	CodeExists
	CodeExited
	CodeStdinClosed
	CodeNoPTY
	CodeOffset
	CodeUnsupported
	CodeLimit
	CodeBusy // the same id is being started by another request
)

// Error is a failed request.
type Error struct {
	Code   uint8
	Reason uint8
	Errno  uint32
	What   string
}

func (e *Error) Error() string { return e.What }

func (e *Error) Append(enc *Enc) {
	enc.U8(e.Code)
	enc.U8(e.Reason)
	enc.U32(e.Errno)
	enc.Str(e.What)
}

func ParseError(b []byte) (*Error, error) {
	d := Dec{B: b}
	e := &Error{d.U8(), d.U8(), d.U32(), d.Str()}
	return e, d.Err()
}

// StartError builds the Error for a start that failed at reason.
func StartError(reason process.StartReason, errno uint32, what string) *Error {
	return &Error{Code: CodeStart, Reason: uint8(reason), Errno: errno, What: what}
}
