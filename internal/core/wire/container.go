package wire

import (
	"math"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/core/container"
)

// CellSpec asks for a container.
type ContainerSpec struct{ container.Spec }

func (s *ContainerSpec) Append(e *Enc) {
	e.Str(string(s.ID))
	e.Str(s.Hostname)
	e.Str(s.Dir)
	e.Strs(s.Layers)
	e.U8(uint8(s.Base))
	e.Strs(s.Hide)
	e.U32(uint32(len(s.Binds)))
	for _, b := range s.Binds {
		e.Str(b.Source)
		e.Str(b.Target)
		e.U8(bindFlags(b))
	}
	e.U32(s.UIDBase)
	e.U8(uint8(s.Net))
	appendLimits(e, s.Limits)
	e.U64(s.Harden.Caps)
	e.Bool(s.Harden.Seccomp)
	e.Bool(s.Harden.Landlock)
	e.Bool(s.Harden.Setuid)
	e.Bool(s.Volatile)
	if s.Disk != "" || len(s.Show) > 0 || len(s.Copies) > 0 { // a keeper of before knows none
		e.Str(s.Disk)
	}
	if len(s.Show) > 0 || len(s.Copies) > 0 {
		e.Strs(s.Show)
	}
	if len(s.Copies) > 0 {
		var all []string
		for _, c := range s.Copies {
			all = append(all, c.Source, c.Target)
		}
		e.Strs(all)
	}
}

const bindReadOnly, bindDisk = 1, 2

func bindFlags(b container.Bind) (flags uint8) {
	if b.ReadOnly {
		flags |= bindReadOnly
	}
	if b.Disk {
		flags |= bindDisk
	}
	return flags
}

func ParseContainerSpec(b []byte) (s ContainerSpec, err error) {
	d := Dec{B: b}
	s.ID, s.Hostname, s.Dir, s.Layers = container.ID(d.Str()), d.Str(), d.Str(), d.Strs()
	s.Base, s.Hide = container.Base(d.U8()), d.Strs()
	n := int(d.U32())
	if d.err == nil && n > len(d.B)/9 {
		return s, ErrShort
	}
	for range n {
		b := container.Bind{Source: d.Str(), Target: d.Str()}
		flags := d.U8()
		b.ReadOnly, b.Disk = flags&bindReadOnly != 0, flags&bindDisk != 0
		s.Binds = append(s.Binds, b)
	}
	s.UIDBase, s.Net, s.Limits = d.U32(), container.Net(d.U8()), d.limits()
	s.Harden = container.Harden{Caps: d.U64(), Seccomp: d.Bool(), Landlock: d.Bool(), Setuid: d.Bool()}
	s.Volatile = d.Bool()
	if d.err == nil && len(d.B) > 0 {
		s.Disk = d.Str()
	}
	if d.err == nil && len(d.B) > 0 {
		s.Show = d.Strs()
	}
	if d.err == nil && len(d.B) > 0 {
		for pair := range slices.Chunk(d.Strs(), 2) {
			if len(pair) < 2 {
				return s, ErrShort
			}
			s.Copies = append(s.Copies, container.Copy{Source: pair[0], Target: pair[1]})
		}
	}
	return s, d.Err()
}

func appendLimits(e *Enc, l container.Limits) {
	e.U64(uint64(l.Memory))
	e.U64(uint64(l.Tasks))
	e.U64(math.Float64bits(l.CPUs))
}

func (d *Dec) limits() container.Limits {
	return container.Limits{Memory: int64(d.U64()), Tasks: int64(d.U64()), CPUs: math.Float64frombits(d.U64())}
}

// CellID names a container.
type ContainerID struct{ ID container.ID }

func (c ContainerID) Append(e *Enc) { e.Str(string(c.ID)) }
func ParseContainerID(b []byte) (ContainerID, error) {
	d := Dec{B: b}
	return done(&d, ContainerID{container.ID(d.Str())})
}

// CellFreeze freezes or thaws a container.
type ContainerFreeze struct {
	ID     container.ID
	Frozen bool
}

func (c ContainerFreeze) Append(e *Enc) { e.Str(string(c.ID)); e.Bool(c.Frozen) }
func ParseContainerFreeze(b []byte) (ContainerFreeze, error) {
	d := Dec{B: b}
	return done(&d, ContainerFreeze{container.ID(d.Str()), d.Bool()})
}

// CellLimit asks for other limits of a container.
type ContainerLimit struct {
	ID     container.ID
	Limits container.Limits
}

func (c ContainerLimit) Append(e *Enc) { e.Str(string(c.ID)); appendLimits(e, c.Limits) }
func ParseContainerLimit(b []byte) (ContainerLimit, error) {
	d := Dec{B: b}
	return done(&d, ContainerLimit{container.ID(d.Str()), d.limits()})
}

// CellInfo is the answer that describes a container.
type ContainerInfo struct{ container.Info }

func (c *ContainerInfo) Append(e *Enc) {
	e.Str(string(c.ID))
	e.U32(uint32(c.PID))
	e.U64(uint64(c.Started))
	e.U8(uint8(c.Mode))
	e.Strs(c.Active)
	e.Str(c.Group)
	e.Bool(c.Frozen)
	e.Bool(c.Network)
}

func ParseContainerInfo(b []byte) (ContainerInfo, error) {
	d := Dec{B: b}
	return done(&d, ContainerInfo{d.info()})
}

func (d *Dec) info() container.Info {
	return container.Info{ID: container.ID(d.Str()), PID: int(int32(d.U32())), Started: int64(d.U64()), Mode: container.Mode(d.U8()),
		Active: d.Strs(), Group: d.Str(), Frozen: d.Bool(), Network: d.Bool()}
}

// CellInfos is the answer to a list.
type ContainerInfos []container.Info

// shortestInfo is the encoding of an Info without any text.
const shortestInfo = 4 + 4 + 8 + 1 + 4 + 4 + 1 + 1

func (cs ContainerInfos) Append(e *Enc) {
	e.U32(uint32(len(cs)))
	for _, c := range cs {
		(&ContainerInfo{c}).Append(e)
	}
}

func ParseContainerInfos(b []byte) (cs ContainerInfos, err error) {
	d := Dec{B: b}
	n := int(d.U32())
	if d.err == nil && n > len(d.B)/shortestInfo {
		return nil, ErrShort
	}
	for range n {
		cs = append(cs, d.info())
	}
	return cs, d.Err()
}

// CellUsage is what a container has used.
type ContainerUsage struct{ container.Usage }

func (c *ContainerUsage) Append(e *Enc) {
	e.U64(uint64(c.CPU))
	e.U64(uint64(c.Memory))
	e.U64(uint64(c.MemoryPeak))
	e.U64(uint64(c.Tasks))
	e.U64(uint64(c.OOMKills))
}

func ParseContainerUsage(b []byte) (ContainerUsage, error) {
	d := Dec{B: b}
	return done(&d, ContainerUsage{container.Usage{CPU: time.Duration(d.U64()), Memory: int64(d.U64()), MemoryPeak: int64(d.U64()),
		Tasks: int64(d.U64()), OOMKills: int64(d.U64())}})
}

// CellCan is what containers can have here.
type ContainerCan struct{ container.Can }

func (c *ContainerCan) Append(e *Enc) {
	e.U8(uint8(c.Mode))
	e.Strs(c.Layers)
	var words []string
	for _, m := range c.Missing {
		words = append(words, m.Layer, m.Reason)
	}
	e.Strs(words)
	if c.Way != "" {
		e.Str(c.Way)
	}
}

func ParseContainerCan(b []byte) (c ContainerCan, err error) {
	d := Dec{B: b}
	c.Mode, c.Layers = container.Mode(d.U8()), d.Strs()
	words := d.Strs()
	if d.err == nil && len(words)%2 != 0 {
		return c, ErrShort
	}
	for i := 0; i+1 < len(words); i += 2 {
		c.Missing = append(c.Missing, container.Missing{Layer: words[i], Reason: words[i+1]})
	}
	if d.err == nil && len(d.B) > 0 { // a keeper before this version says nothing
		c.Way = d.Str()
	}
	return c, d.Err()
}
