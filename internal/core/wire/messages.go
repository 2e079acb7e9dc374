package wire

import (
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/process"
)

// Operations. Each is named with the body of its request → that of its answer.
const (
	OpHello           = 1 + iota // HelloRequest → Hello, with the board and the wake eventfd
	OpSpawn                      // Spawn → Spawned
	OpSignal                     // Signal → nothing
	OpKill                       // Kill → ShortKilled
	OpResize                     // Resize → Resized
	OpStdin                      // Ref → nothing, with the stdin memfd
	OpFeed                       // Ref: the board says more was accepted; no answer
	OpTrim                       // Trim → nothing
	OpRetire                     // Refs: the server has taken over; the slots are free; no answer
	OpSpaceFree                  // nothing: space was freed, try again; no answer
	OpUpgrade                    // Upgrade; answered only if that fails
	OpPin                        // Pin → nothing
	OpKillNamed                  // Kill → Killed
	OpContainerMake              // CellSpec → CellInfo
	OpContainerNet               // CellID → CellInfo
	OpContainerFreeze            // CellFreeze → nothing
	OpContainerLimit             // CellLimit → nothing
	OpContainerUsage             // CellID → CellUsage
	OpContainerEnd               // CellID → nothing
	OpContainerList              // nothing → CellInfos
	OpContainerCan               // nothing → CellCan
	OpForget                     // Ref: the server is about to remove the process → nothing
)

// Ref names a process by its place on the board.
type Ref struct{ Slot, Gen uint32 }

func (r Ref) Append(e *Enc) { e.U32(r.Slot); e.U32(r.Gen) }
func ParseRef(d *Dec) Ref   { return Ref{d.U32(), d.U32()} }

// ParseTarget decodes a body that is a Ref alone.
func ParseTarget(b []byte) (Ref, error) {
	d := Dec{B: b}
	return done(&d, ParseRef(&d))
}

// Refs are several processes.
type Refs []Ref

func (rs Refs) Append(e *Enc) {
	for _, r := range rs {
		r.Append(e)
	}
}

// ParseRefs decodes Refs; bytes that are no whole one are left out.
func ParseRefs(b []byte) (rs Refs) {
	for d := (Dec{B: b}); len(d.B) >= 8; {
		rs = append(rs, ParseRef(&d))
	}
	return rs
}

// HelloRequest is the first request on a connection that is not for starts alone.
type HelloRequest struct{ Version uint32 }

func (h HelloRequest) Append(e *Enc) { e.U32(h.Version) }

// Hello is the keeper's answer to a hello.
type Hello struct {
	Version uint32
	PID     uint32
	// Facts about this machine, as "name=value" or "name!reason" when a
	// promise is not kept.
	Facts []string
}

func (h *Hello) Append(e *Enc) { e.U32(h.Version); e.U32(h.PID); e.Strs(h.Facts) }
func ParseHello(b []byte) (Hello, error) {
	d := Dec{B: b}
	return done(&d, Hello{d.U32(), d.U32(), d.Strs()})
}

// Spawn asks for a process. Spec is the encoded process.Spec as it goes to the
// journal; the other fields are for the kernel, worked out by the
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
	// Container is where the program runs; "": on this machine. Path, Dir, UID, GID and Groups
	// are then those inside. The spec has the label LabelBox with the same ID. Only a
	// keeper with the fact "boxes=…" is asked.
	Container container.ID
}

// LabelBox is the label of a process.Spec that names the container it runs in.
const LabelContainer = process.LabelSandbox

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
	if s.Container != "" {
		e.Str(string(s.Container))
	}
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
	if d.err == nil && len(d.B) > 0 {
		s.Container = container.ID(d.Str())
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
	// Inner is the pid inside a container; 0: the process is in none.
	Inner uint32
}

func (s *Spawned) Append(e *Enc) {
	s.Ref.Append(e)
	e.U32(s.PID)
	e.Bool(s.Existing)
	e.U32(s.Keeper)
	if s.Inner != 0 {
		e.U32(s.Inner)
	}
}

func ParseSpawned(b []byte) (s Spawned, err error) {
	d := Dec{B: b}
	s = Spawned{Ref: ParseRef(&d), PID: d.U32(), Existing: d.Bool(), Keeper: d.U32()}
	if d.err == nil && len(d.B) > 0 {
		s.Inner = d.U32()
	}
	return s, d.Err()
}

// Signal asks for a signal to a process, its group or its tree.
type Signal struct {
	Ref
	Signal uint32
	Scope  process.Scope
}

func (s Signal) Append(e *Enc) { s.Ref.Append(e); e.U32(s.Signal); e.U8(uint8(s.Scope)) }
func ParseSignal(b []byte) (Signal, error) {
	d := Dec{B: b}
	return done(&d, Signal{ParseRef(&d), d.U32(), process.Scope(d.U8())})
}

// Resize asks for another size of a terminal.
type Resize struct {
	Ref
	process.Resize
}

func (r Resize) Append(e *Enc) {
	r.Ref.Append(e)
	appendSize(e, r.To)
	if r.Only != nil {
		appendSize(e, *r.Only)
	}
}

func ParseResize(b []byte) (Resize, error) {
	d := Dec{B: b}
	r := Resize{ParseRef(&d), process.Resize{To: d.size()}}
	if len(d.B) > 0 { // servers of before do not have it
		only := d.size()
		r.Only = &only
	}
	return r, d.Err()
}

// Resized is the size before.
type Resized process.Size

func (r Resized) Append(e *Enc) { appendSize(e, process.Size(r)) }
func ParseResized(b []byte) (Resized, error) {
	d := Dec{B: b}
	return done(&d, Resized(d.size()))
}

func appendSize(e *Enc, s process.Size) { e.U32(uint32(s.Cols)); e.U32(uint32(s.Rows)) }
func (d *Dec) size() process.Size {
	return process.Size{Cols: uint16(d.U32()), Rows: uint16(d.U32())}
}

// Trim asks to free a stream's output before an offset.
type Trim struct {
	Ref
	Stream process.Stream
	Before int64
}

func (t Trim) Append(e *Enc) { t.Ref.Append(e); e.U8(uint8(t.Stream)); e.U64(uint64(t.Before)) }
func ParseTrim(b []byte) (Trim, error) {
	d := Dec{B: b}
	return done(&d, Trim{ParseRef(&d), process.Stream(d.U8()), int64(d.U64())})
}

// Pin asks to write down whether a process is pinned.
type Pin struct {
	Ref
	Pinned bool
}

func (p Pin) Append(e *Enc) { p.Ref.Append(e); e.Bool(p.Pinned) }
func ParsePin(b []byte) (Pin, error) {
	d := Dec{B: b}
	return done(&d, Pin{ParseRef(&d), d.U8() == 1})
}

// Upgrade asks the keeper to go on as another program.
type Upgrade struct{ Path string }

func (u Upgrade) Append(e *Enc)     { e.B = append(e.B, u.Path...) }
func ParseUpgrade(b []byte) Upgrade { return Upgrade{string(b)} }

// Kill asks for the end of a tree, for a cause that Exit will have.
type Kill struct {
	Ref
	Cause process.Cause
}

func (k Kill) Append(e *Enc) { k.Ref.Append(e); e.U8(uint8(k.Cause)) }
func ParseKill(b []byte) (Kill, error) {
	d := Dec{B: b}
	return done(&d, Kill{ParseRef(&d), process.Cause(d.U8())})
}

// Killed is the answer to a Kill.
type Killed struct {
	Verified  bool
	Survivors []uint32
	// Strays are alive, and may or may not have been in the tree. Names are of the
	// survivors and then of the strays. ShortKilled has neither.
	Strays []uint32
	Names  []string
}

func (k *Killed) Append(e *Enc) {
	(*ShortKilled)(k).Append(e)
	e.appendPIDs(k.Strays)
	e.Strs(k.Names)
}

// ShortKilled is the answer to OpKill, which servers of before send.
type ShortKilled Killed

func (k *ShortKilled) Append(e *Enc) {
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
	// Of containers: those of package container.
	CodeContainerNotFound
	CodeContainerEnded
	CodeContainerFrozen
	CodeContainerExists
	CodeUnfinished // What is left of a process that has exited
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
	return done(&d, &Error{d.U8(), d.U8(), d.U32(), d.Str()})
}

// StartError builds the Error for a start that failed at reason.
func StartError(reason process.StartReason, errno uint32, what string) *Error {
	return &Error{Code: CodeStart, Reason: uint8(reason), Errno: errno, What: what}
}
